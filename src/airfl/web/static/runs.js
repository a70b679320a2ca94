// The table of runs: the state is the query; a running sweep updates itself.
"use strict";

(() => {
  const { make, fill, byId, show, say, percent, epsilon } = airfl;
  const HEAD = [
    ["", ""], ["folder", "Folder"], ["scheme", "Scheme"], ["accuracy", "Accuracy", 1], ["epsilon", "ε booked", 1], ["", "Against"],
    ["", "Settings"], ["status", "Status"], ["trials", "Trials", 1], ["rounds", "Rounds", 1],
  ];
  const STATES = { done: "done", running: "running", writing: "being written", unfinished: "not finished", damaged: "damaged", refused: "refused" };
  const MOST_FOLDERS = 12;
  const picked = new Set();
  let all = false;
  let latest = null;

  const asked = () => new URLSearchParams(location.search);

  const change = (values) => {
    const found = asked();
    for (const [name, value] of Object.entries(values)) value ? found.set(name, value) : found.delete(name);
    history.replaceState(null, "", `${location.pathname}${[...found].length ? `?${found}` : ""}`);
    return load();
  };

  let turn = 0;
  const load = async () => {
    const mine = ++turn;
    try {
      const found = await airfl.source.rows(asked());
      if (mine !== turn) return false;
      say("");
      if (found) {
        latest = found;
        render(found);
      }
    } catch (error) {
      if (mine === turn) say(error.message);
      return true;
    }
    return Boolean(latest && latest.live);
  };

  const render = (found) => {
    const { folder, bar } = { folder: asked().get("in") || "", bar: byId("folders").tBodies[0] };
    const items = all ? found.items : found.items.slice(0, MOST_FOLDERS);
    fill(bar, ...items.map(itemRow));
    show(byId("more-folders"), items.length < found.items.length);
    const notes = byId("notes");
    fill(notes, ...found.notes.map((note) => make("li", {}, note)));
    show(notes, found.notes.length > 0);
    claims(found.claims);
    options(byId("in"), found.items.map((item) => item.folder), folder, "all");
    const sort = asked().get("sort") || "";
    options(byId("sort"), [...found.columns, ...found.axes], sort.replace(/^-/, ""), "as they lie");
    byId("down").value = sort.startsWith("-") ? "-" : "";
    if (document.activeElement !== byId("q")) byId("q").value = asked().get("q") || "";
    const some = found.matching === found.total ? "" : `${found.matching.toLocaleString("en-US")} of `;
    byId("count").textContent = `${some}${found.total.toLocaleString("en-US")} rows`;
    byId("page").textContent = `page ${found.page} of ${found.pages}`;
    byId("back").disabled = found.page <= 1;
    byId("next").disabled = found.page >= found.pages;
    head(sort);
    fill(byId("rows").tBodies[0], ...found.rows.map(line));
    pick();
  };

  const itemRow = (item) => {
    const open = make("a", { href: `?${new URLSearchParams({ in: item.folder })}` }, item.folder);
    const done = item.kind === "study" ? `${item.done.toLocaleString("en-US")} of ${item.cells.toLocaleString("en-US")}` : `${item.done} of ${item.cells}`;
    const left = item.seconds_left && item.state === "running" ? `, about ${Math.ceil(item.seconds_left / 60)} min left` : "";
    const state = make("td", {}, make("span", { class: `state ${item.state}` }, STATES[item.state]));
    if (item.state === "running" && item.kind === "study") state.append(" ", make("progress", { max: 1, value: item.share, "aria-label": `${item.folder}: share that is done` }), left);
    if (item.failed) state.append(` ${item.failed} failed`);
    if (item.message) state.append(make("small", {}, item.message));
    const written = item.changed ? new Date(1000 * item.changed).toISOString().replace("T", " ").slice(0, 16) : "–";
    return make("tr", {}, make("th", { scope: "row" }, open), make("td", {}, item.name), make("td", {}, item.kind), state, make("td", { class: "num" }, item.cells ? done : "–"), make("td", { class: "when" }, written));
  };

  const claims = (found) => {
    const parts = Object.entries(found).flatMap(([folder, variants]) =>
      Object.entries(variants).map(([variant, rows]) =>
        make("details", {}, make("summary", {}, `${folder}: variant ${variant}, ${rows.length} claims`),
          airfl.table(["Claim", "Verdict", "Found", "Caveat"], rows.map((row) => [row.sentence, row.verdict, row.found, row.caveat]))),
      ),
    );
    show(byId("claims"), parts.length > 0);
    const open = new Set([...byId("claims").querySelectorAll("details[open] summary")].map((one) => one.textContent));
    for (const part of parts) part.open = open.has(part.firstChild.textContent);
    fill(byId("claims").querySelector("div"), ...parts);
  };

  const options = (select, names, chosen, first) => {
    const wanted = ["", ...names];
    if ([...select.options].map((option) => option.value).join("\n") !== wanted.join("\n"))
      fill(select, ...wanted.map((name) => make("option", { value: name }, name || first)));
    select.value = wanted.includes(chosen) ? chosen : "";
  };

  const head = (sort) => {
    const cells = HEAD.map(([key, words, number]) => {
      const way = sort.replace(/^-/, "") === key && key ? (sort.startsWith("-") ? "descending" : "ascending") : null;
      const cell = make("th", { scope: "col", class: number ? "num" : null, "aria-sort": way });
      if (!key) cell.append(words || make("span", { class: "hidden" }, "Choose"));
      else {
        const button = make("button", { type: "button", class: "sort", "data-sort": way === "descending" ? key : way ? `-${key}` : number ? `-${key}` : key }, words);
        if (way) button.append(way === "ascending" ? " ▲" : " ▼");
        cell.append(button);
      }
      return cell;
    });
    const focus = document.activeElement && document.activeElement.dataset && document.activeElement.textContent.replace(/ [▲▼]$/, "");
    const inside = byId("rows").tHead.contains(document.activeElement);
    fill(byId("rows").tHead, make("tr", {}, ...cells));
    if (inside) [...byId("rows").tHead.querySelectorAll("button")].find((button) => button.textContent.replace(/ [▲▼]$/, "") === focus)?.focus();
  };

  const line = (row) => {
    const view = `${document.body.dataset.view}?${new URLSearchParams({ row: row.id })}`;
    const box = make("input", { type: "checkbox", value: row.id, "aria-label": `choose ${row.id}` });
    box.checked = picked.has(row.id);
    const settings = Object.entries(row.settings).map(([key, value]) => `${key.slice(key.indexOf(".") + 1)} = ${value}`).join(", ");
    const shown = row.trials ? epsilon(row.epsilon) : "–";
    return make(
      "tr",
      {},
      make("td", {}, box),
      make("td", {}, row.folder),
      make("th", { scope: "row" }, make("a", { href: view }, row.scheme)),
      make("td", { class: "num accuracy" }, percent(row.accuracy, row.accuracy_std, row.trials)),
      make("td", { class: "num" }, shown),
      make("td", {}, row.against),
      make("td", { class: "settings" }, settings),
      make("td", {}, row.status),
      make("td", { class: "num" }, row.failed ? `${row.trials} (${row.failed} failed)` : String(row.trials)),
      make("td", { class: "num" }, row.rounds === null ? "–" : String(row.rounds)),
    );
  };

  const pick = () => {
    byId("overlay").disabled = !picked.size;
    byId("picked").textContent = picked.size ? `${picked.size} chosen${picked.size > 12 ? "; at most 12 are shown" : ""}` : "Choose rows to see them side by side.";
  };

  byId("rows").addEventListener("change", (event) => {
    if (event.target.type !== "checkbox") return;
    event.target.checked ? picked.add(event.target.value) : picked.delete(event.target.value);
    pick();
  });
  byId("rows").addEventListener("click", (event) => {
    const sort = event.target.dataset && event.target.dataset.sort;
    if (sort) change({ sort, page: "" });
  });
  byId("chosen").addEventListener("submit", (event) => {
    event.preventDefault();
    location.href = `${document.body.dataset.view}?${new URLSearchParams([...picked].slice(0, 12).map((id) => ["row", id]))}`;
  });
  let typing = 0;
  byId("q").addEventListener("input", (event) => {
    clearTimeout(typing);
    typing = setTimeout(() => change({ q: event.target.value.trim(), page: "" }), 150);
  });
  byId("filter").addEventListener("submit", (event) => event.preventDefault());
  byId("in").addEventListener("change", (event) => change({ in: event.target.value, page: "" }));
  const sorted = () => change({ sort: byId("sort").value ? `${byId("down").value}${byId("sort").value}` : "", page: "" });
  byId("sort").addEventListener("change", sorted);
  byId("down").addEventListener("change", sorted);
  byId("back").addEventListener("click", () => change({ page: String(latest.page - 1) }));
  byId("next").addEventListener("click", () => change({ page: String(latest.page + 1) }));
  byId("more-folders").addEventListener("click", () => {
    all = true;
    render(latest);
  });
  load();
  airfl.follow(load);
})();
