// The planner: controls to a query, the query to an answer, the answer to the page. All numbers are the server's.
"use strict";

(() => {
  const { make, fill, byId, show, say } = airfl;
  const FIRST = "satellite-iot";
  const state = { scenario: "", given: new Map(), solve: "" };
  const rivals = JSON.parse(document.body.dataset.rivals);
  const controls = new Map();
  let answered = null;

  class Control {
    constructor(element) {
      const { name, kind, scale, low, high, step } = element.dataset;
      Object.assign(this, { element, name, kind, scale: Number(scale), low: Number(low), high: Number(high), step: Number(step) });
      this.log = "log" in element.dataset;
      this.field = element.querySelector("select, .number");
      this.slide = element.querySelector(".slide");
      this.let = element.querySelector(".let");
      this.let.addEventListener("click", () => release(this.name));
      if (this.slide) {
        this.slide.addEventListener("input", () => touch(this.name, this.command(this.fromSlide()), true));
        this.slide.addEventListener("change", () => touch(this.name, this.command(this.fromSlide()), false));
      }
      this.field.addEventListener("change", () => this.typed());
      if (this.kind !== "choice") this.field.addEventListener("input", () => this.typed(true));
    }

    typed(live = false) {
      const text = this.field.value.trim();
      if (!text) release(this.name, live);
      else touch(this.name, this.kind === "choice" ? text : this.command(text.replace(/^−/, "-")), live, true);
    }

    // As the command line takes it: in its own unit, as it was typed where the units are the same.
    command(text) {
      const value = Number(text);
      if (!isFinite(value) || this.scale === 1) return String(text);
      return String(Number((value * this.scale).toPrecision(15)));
    }

    // As people read it, in the unit beside the control.
    text(command) {
      const value = Number(command) / this.scale;
      if (!isFinite(value)) return String(command);
      if (this.kind === "int") return String(value);
      const short = Number(value.toPrecision(6));
      return Math.abs(short) >= 1e7 || (short !== 0 && Math.abs(short) < 1e-3) ? short.toExponential().replace("e+", "e") : String(short);
    }

    fromSlide() {
      const share = Number(this.slide.value) / 1000;
      let value = this.log ? this.low * (this.high / this.low) ** share : this.low + share * (this.high - this.low);
      if (this.kind === "int") value = value < 1000 ? Math.round(value) : Math.round(Number(value.toPrecision(3)));
      else if (this.log) value = Number(value.toPrecision(3));
      else if (this.step) value = Number((Math.round(value / this.step) * this.step).toFixed(6));
      return Math.min(this.high, Math.max(this.low, value));
    }

    // Shows what the plan has; leaves alone what somebody is typing in or dragging.
    set(command, own) {
      const known = command !== null && command !== undefined && command !== "None";
      this.element.classList.toggle("own", own);
      this.let.hidden = !own;
      if (this.kind === "choice") {
        this.field.value = known ? command : "";
        return;
      }
      const active = document.activeElement;
      if (active !== this.field) this.field.value = known ? this.text(command) : "";
      if (active === this.field && !known && !this.field.value) this.field.value = "";
      if (!known) this.slide.value = this.slide.min;
      else if (active !== this.slide) {
        const value = Math.min(this.high, Math.max(this.low, Number(command) / this.scale));
        const share = this.log ? Math.log(value / this.low) / Math.log(this.high / this.low) : (value - this.low) / (this.high - this.low);
        this.slide.value = String(Math.round(1000 * share));
      }
      this.element.classList.toggle("unsaid", !known);
      this.slide.setAttribute("aria-valuetext", known ? this.text(command) : "not said");
    }
  }

  // ------------------------------------------------------------------ the state, which is the query

  const query = () => {
    const found = new URLSearchParams();
    if (state.scenario) found.set("scenario", state.scenario);
    for (const [name, text] of state.given) found.set(name, text);
    if (state.solve) found.set("solve-for", state.solve);
    return found;
  };

  const readState = () => {
    const found = new URLSearchParams(location.search);
    state.scenario = found.get("scenario") || "";
    state.solve = found.get("solve-for") || "";
    state.given = new Map([...found].filter(([name, text]) => controls.has(name) && text));
    if (![...found].length) state.scenario = FIRST;
    byId("scenario").value = state.scenario;
  };

  let writing = 0;
  const writeState = () => {
    byId("shown").dataset.want = String(query());
    clearTimeout(writing);
    writing = setTimeout(() => history.replaceState(null, "", `?${query()}`), 150); // browsers count these
    byId("link").value = `${location.origin}${location.pathname}?${query()}`;
  };

  const touch = (name, text, live) => {
    for (const other of rivals[name] || []) state.given.delete(other);
    state.given.set(name, text);
    if (state.solve === name || (state.solve === "power" && name === "power-dbm")) state.solve = "";
    ask(live);
  };

  const release = (name, live = false) => {
    state.given.delete(name);
    ask(live);
  };

  // ------------------------------------------------------------------ asking: one question at a time, the latest wins

  let asking = null;
  let next = null;

  const ask = async (live) => {
    writeState();
    if (asking) {
      next = { live: live && (!next || next.live) };
      if (!asking.live) asking.stop.abort(); // drawing goes on there, and its result is remembered
      return;
    }
    asking = { live, stop: new AbortController() };
    const begun = setTimeout(() => show(byId("waiting"), !live), 400);
    const asked = String(query());
    try {
      const found = await airfl.get(`api/plan?${asked}${live ? "&live=1" : ""}`, asking.stop.signal);
      if (found && found.not_drawn) show(byId("waiting"), true);
      else {
        say("");
        show(byId("waiting"), false);
        if (found) render(found);
        else keepControls(); // the same answer again
        byId("shown").dataset.of = asked;
      }
      byId("shown").classList.toggle("old", Boolean(found && found.not_drawn));
    } catch (error) {
      if (error.name !== "AbortError") {
        show(byId("waiting"), false);
        say(error.message);
        byId("shown").classList.add("old");
        keepControls();
      }
    }
    clearTimeout(begun);
    asking = null;
    if (next) {
      const { live: again } = next;
      next = null;
      ask(again);
    }
  };

  // ------------------------------------------------------------------ the answer

  const render = (found) => {
    answered = found;
    const words = airfl.make("p", { class: found.verdict.is_perk ? "perk" : "no-perk" }, `${found.verdict.words}.`);
    const models = found.observers.find((row) => row.observer === "models");
    const facts = make("p", { class: "facts" });
    const fact = (name, value) => facts.append(make("span", {}, `${name} `, make("b", {}, value)));
    fact("free ε", models.free);
    fact("margin", found.verdict.margin);
    if (found.verdict.cost) fact("predicted cost", found.verdict.cost);
    fill(byId("verdict"), words, facts);
    byId("short").textContent = `${found.title}: ${found.short}`;
    fill(byId("observers").tBodies[0], ...found.observers.map(observer));
    list("sentences", found.sentences);
    list("warnings", found.warnings);
    show(byId("warnings"), found.warnings.length > 0);
    byId("command").value = found.command;
    byId("toml").value = found.toml;
    solved(found);
    phase(found.phase);
    keepControls();
  };

  const observer = (row) =>
    make(
      "tr",
      { "data-observer": row.observer },
      make("th", { scope: "row" }, make("b", {}, row.observer), make("span", { class: "fine" }, ` ${row.who}`)),
      make("td", { class: "num free" }, row.free),
      make("td", {}, row.free_words),
      make("td", { class: "num kept" }, row.kept),
      make("td", {}, row.kept_words),
    );

  const list = (id, sentences) => {
    const place = byId(id).tagName === "UL" ? byId(id) : byId(id).querySelector("ul");
    fill(place, ...sentences.map((sentence) => make("li", {}, sentence)));
  };

  const solved = (found) => {
    const place = byId("solved");
    for (const button of byId("solve").children) button.setAttribute("aria-pressed", String(button.dataset.word === state.solve));
    show(place, Boolean(found.solved));
    if (!found.solved) return;
    const { name, text, value } = found.solved;
    const take = make("button", { type: "button" }, "Take it as given");
    take.addEventListener("click", () => touch(name, value, false));
    fill(place, make("b", {}, `${name}: ${text}`), " ", take);
  };

  const phase = (found) => {
    show(byId("no-phase"), Boolean(found.why));
    show(byId("phase"), !found.why);
    if (found.why) {
      byId("no-phase").textContent = found.why;
      byId("phase").replaceChildren();
      return;
    }
    const decibel = (value) => `${Number(value.toFixed(1))}`.replace("-", "−");
    const target = `target ε = ${found.target.epsilon}`;
    airfl.chart(byId("phase"), {
      label: `Phase diagram: this link has ${found.point.devices} devices and ${decibel(found.point.snr_db)} dB; ${target}`,
      height: 380,
      margin: 78,
      x: { label: "devices n", short: "n =", log: true, text: (value) => (value < 1e5 ? String(value) : airfl.plain(value)) },
      y: { label: "worst-case SNR per antenna, dB", text: decibel },
      lines: [
        ...found.curves.map((curve) => ({ label: `ε = ${curve.epsilon}`, end: `ε = ${curve.epsilon}`, kind: "level", x: found.devices, y: curve.snr_db })),
        { label: target, end: `ε = ${found.target.epsilon}`, kind: "target", fill: true, x: found.devices, y: found.target.snr_db },
      ],
      point: { x: found.point.devices, y: found.point.snr_db, label: `free ε = ${found.free}` },
    });
  };

  const keepControls = () => {
    for (const [name, control] of controls) {
      const own = state.given.has(name);
      control.set(own ? state.given.get(name) : answered ? answered.values[name] : null, own);
    }
  };

  // ------------------------------------------------------------------ beginning

  for (const element of document.querySelectorAll(".control")) controls.set(element.dataset.name, new Control(element));
  byId("scenario").addEventListener("change", (event) => {
    state.scenario = event.target.value;
    ask(false);
  });
  byId("reset").addEventListener("click", () => {
    state.given.clear();
    state.solve = "";
    ask(false);
  });
  byId("solve").addEventListener("click", (event) => {
    const { word } = event.target.dataset;
    if (!word) return;
    state.solve = state.solve === word ? "" : word;
    if (state.solve) {
      state.given.delete(word);
      for (const other of rivals[word] || []) state.given.delete(other);
    }
    ask(false);
  });
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("popstate", () => {
    readState();
    ask(false);
  });
  for (const details of document.querySelectorAll("details.group"))
    if (window.innerWidth < 700 && details !== document.querySelector("details.group")) details.open = false;
  readState();
  ask(false);
})();
