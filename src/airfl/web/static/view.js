// One row, or several laid over each other: curves, configuration, what observers learn, claims, files.
"use strict";

(() => {
  const { make, fill, byId, show, say, epsilon, percent } = airfl;
  const ids = new URLSearchParams(location.search).getAll("row");
  let latest = null;

  const NAMES = {
    accuracy: { title: "Test accuracy against rounds", label: "test accuracy", text: (value) => `${Number((100 * value).toPrecision(3))} %` },
    epsilon: { title: "ε as booked against rounds", label: "ε so far", text: epsilon },
    noise_var: { title: "Noise variance per coordinate against rounds", label: "noise variance", text: airfl.plain },
    train_loss: { title: "Training loss against rounds", label: "training loss", text: airfl.plain },
  };

  const load = async () => {
    if (!ids.length) {
      say("No row is named: choose some in the table of runs.");
      return false;
    }
    try {
      const found = await airfl.source.view(ids);
      if (found) {
        latest = found;
        render(found);
      }
    } catch (error) {
      say(error.message);
    }
    return Boolean(latest && latest.live);
  };

  const nameOf = (one, several) => {
    const { row } = one;
    const settings = Object.entries(row.settings).map(([key, value]) => `${key.slice(key.indexOf(".") + 1)} = ${value}`);
    return several ? [row.folder, row.scheme, ...settings].join(", ") : `${one.title}${settings.length ? ` (${settings.join(", ")})` : ""}`;
  };

  const render = (found) => {
    const bad = found.rows.filter((one) => one.problem);
    const good = found.rows.filter((one) => !one.problem);
    say(bad.map((one) => `${one.id}: ${one.problem}`).join(" · "));
    show(byId("live"), found.live);
    const title = good.length === 1 ? `${good[0].row.folder}: ${good[0].title}` : good.length ? `${good.length} side by side` : "Nothing to show";
    byId("title").textContent = title;
    document.title = `${title} · airfl`;
    const open = new Set([...document.querySelectorAll("main details[open]")].map((one) => one.dataset.key));
    legend(good);
    charts(good);
    configuration(good);
    ledgers(good);
    said(good);
    files(good);
    for (const details of document.querySelectorAll("main details")) if (open.has(details.dataset.key)) details.open = true;
  };

  const details = (key, title, ...inside) => make("details", { "data-key": key }, make("summary", {}, title), ...inside);

  const legend = (good) => {
    const items = good.map((one, number) => {
      const facts = `${percent(one.row.accuracy, one.row.accuracy_std, one.row.trials)} accuracy, ε ${one.row.trials ? epsilon(one.row.epsilon) : "–"}${one.keeps_budget ? ` booked by ${one.booked_by}` : ", no budget"}, ${one.row.status}`;
      const swatch = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      swatch.setAttribute("class", "swatch");
      swatch.setAttribute("viewBox", "0 0 40 10");
      swatch.setAttribute("aria-hidden", "true");
      const stroke = document.createElementNS("http://www.w3.org/2000/svg", "path");
      stroke.setAttribute("class", `line s${number % 8}`);
      stroke.setAttribute("d", "M1 5H39");
      swatch.append(stroke);
      return make("li", {}, swatch, make("span", {}, make("b", {}, nameOf(one, good.length > 1)), make("small", {}, `${one.about} ${facts}.`)));
    });
    fill(byId("legend"), ...items);
  };

  const wide = (values) => {
    const good = values.filter((value) => value !== null && value > 0);
    return good.length > 0 && Math.max(...good) > 30 * Math.min(...good);
  };

  const charts = (good) => {
    const place = byId("charts");
    const figures = [];
    const add = (title, lines, x, y) => {
      const missing = good.length - lines.length;
      const figure = make("figure", {}, make("figcaption", {}, title));
      const inside = make("div");
      figure.append(inside);
      if (missing) figure.append(make("p", { class: "fine" }, lines.length ? `${missing} of ${good.length} have no finite values here.` : "No finite values to draw."));
      figures.push([figure, () => lines.length && airfl.chart(inside, { label: title, lines, x, y, height: 300 })]);
    };
    const common = (one, number) => ({ label: nameOf(one, good.length > 1), short: good.length > 1 ? `${number + 1}` : one.title, number });
    const rounds = { label: "round", text: (value) => String(value) };
    for (const [key, name] of Object.entries(NAMES)) {
      const lines = good
        .map((one, number) => ({ ...common(one, number), x: one.curves[key].round, y: one.curves[key].mean, low: one.curves[key].low, high: one.curves[key].high }))
        .filter((line) => line.y.some((value) => value !== null));
      const log = ["epsilon", "noise_var"].includes(key) && wide(lines.flatMap((line) => line.y));
      add(name.title, lines, rounds, { label: name.label, text: name.text, log, zero: key === "accuracy" });
      if (key === "epsilon") {
        const both = good.map((one, number) => ({ ...common(one, number), ...paired(one.curves) })).filter((line) => line.x.length);
        const far = wide(both.flatMap((line) => line.x));
        add("Test accuracy against ε as booked", both, { label: "ε so far", short: "ε", text: epsilon, log: far }, { label: NAMES.accuracy.label, text: NAMES.accuracy.text, zero: true });
      }
    }
    fill(place, ...figures.map(([figure]) => figure));
    for (const [, begin] of figures) begin(); // in its place it has a width
  };

  // Rounds that have both, by ε.
  const paired = (curves) => {
    const at = new Map(curves.epsilon.round.map((round, k) => [round, curves.epsilon.mean[k]]));
    const pairs = curves.accuracy.round.map((round, k) => [at.get(round), curves.accuracy.mean[k]]).filter(([x, y]) => x !== undefined && x !== null && x > 0 && y !== null);
    return { x: pairs.map(([x]) => x), y: pairs.map(([, y]) => y) };
  };

  const configuration = (good) => {
    const parts = [];
    if (good.length > 1) {
      const keys = [...new Set(good.flatMap((one) => Object.keys(one.config)))];
      const differ = keys.filter((key) => new Set(good.map((one) => one.config[key])).size > 1);
      const names = good.map((one, number) => `${number + 1}. ${nameOf(one, true)}`);
      if (differ.length) parts.push(airfl.table(["What differs", ...names], differ.map((key) => [key, ...good.map((one) => one.config[key] ?? "–")])));
      else parts.push(make("p", {}, "The configurations are the same."));
    }
    good.forEach((one, number) => {
      const field = make("textarea", { id: `toml-${number}`, readonly: true, rows: 14, "aria-label": `configuration of ${nameOf(one, true)}` });
      field.value = one.toml;
      const copy = make("button", { type: "button", "data-copy": `toml-${number}` }, "Copy");
      const keys = airfl.table(["Key", "Value"], Object.entries(one.config));
      parts.push(details(`config-${one.row.id}`, `All of ${nameOf(one, true)}`, make("div", { class: "take" }, field, copy), keys));
    });
    fill(byId("config"), ...parts);
  };

  const ledgers = (good) => {
    const parts = good.map((one) => {
      const box = make("div", { class: "ledger" });
      if (good.length > 1) box.append(make("h3", {}, nameOf(one, true)));
      box.append(make("p", { class: "fine" }, one.promise));
      if (!one.observers.length) box.append(make("p", {}, "No ledgers are kept here, so nothing is known but what was booked."));
      for (const seen of one.observers) {
        const exact = seen.accountants.find((entry) => entry.name === "gaussian") || seen.accountants[0];
        const rows = seen.accountants.map((entry) => [`${entry.name} (${entry.label})`, entry.text, entry.meaning, entry.proven ? "proven" : "not proven", entry.assumptions]);
        const table = airfl.table(["Accountant", "ε", "which is", "proof", "It rests on"], rows);
        const head = make("summary", {}, make("b", {}, `${seen.observer}: ε ${exact.epsilon === null ? "= ∞" : `≤ ${exact.text}`}`), ` ${seen.who}: ${exact.meaning}`);
        box.append(make("details", { "data-key": `${one.row.id}-${seen.observer}` }, head, table));
      }
      return box;
    });
    fill(byId("ledgers"), ...parts);
  };

  const said = (good) => {
    const seen = new Set();
    const parts = [];
    for (const one of good) {
      const key = one.sentences.join("\n");
      if (seen.has(key)) continue;
      seen.add(key);
      if (good.length > 1) parts.push(make("h3", {}, one.row.folder));
      parts.push(make("ul", {}, ...one.sentences.map((sentence) => make("li", {}, sentence))));
    }
    fill(byId("said"), ...parts);
  };

  const files = (good) => {
    const parts = [];
    const seen = new Set();
    for (const one of good) {
      const made = Object.entries(one.provenance).map(([key, value]) => `${key} ${value}`).join(" · ");
      if (!seen.has(one.row.folder)) {
        seen.add(one.row.folder);
        if (good.length > 1) parts.push(make("h3", {}, one.row.folder));
        if (airfl.source.file && one.files.length)
          parts.push(make("ul", { class: "files" }, ...one.files.map((file) => make("li", {}, make("a", { href: airfl.source.file(file), download: file.name }, file.name), ` ${airfl.bytes(file.bytes)}`))));
        else parts.push(make("p", { class: "fine" }, `An export has no files to take along; they lie in ${one.row.folder}.`));
        parts.push(make("p", { class: "fine" }, made));
      }
    }
    fill(byId("files"), ...parts);
  };

  load();
  airfl.follow(load);
})();
