// What all pages share. Text from anywhere goes in as text, never as markup.
"use strict";

const airfl = (window.airfl = window.airfl || {});

// An element: make("td", {class: "num"}, "text", child)
airfl.make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  for (const child of children) if (child !== null && child !== undefined) element.append(child);
  return element;
};

airfl.fill = (element, ...children) => element.replaceChildren(...children.filter((child) => child !== null));

airfl.byId = (id) => document.getElementById(id);

airfl.show = (element, visible) => {
  element.hidden = !visible;
};

airfl.say = (sentence) => {
  const problem = airfl.byId("problem");
  problem.textContent = sentence || "";
  airfl.show(problem, Boolean(sentence));
};

airfl.percent = (value, spread, trials) =>
  value === null || value === undefined
    ? "–"
    : (100 * value).toFixed(1) + (spread && trials > 1 ? " ± " + (100 * spread).toFixed(1) : "") + " %";

// As at_most_text: three significant digits, never below.
airfl.epsilon = (value) => {
  if (value === null || value === undefined || !isFinite(value)) return "∞";
  if (value === 0) return "0";
  const shown = value * (1 - 1e-9);
  const digits = shown < 999.5 ? 3 : shown < 99999.5 ? Math.max(2, Math.floor(Math.log10(shown)) + 1) : 2;
  const unit = 10 ** (Math.floor(Math.log10(shown)) + 1 - digits);
  const up = Number((Math.ceil(Number((shown / unit).toPrecision(12))) * unit).toPrecision(digits));
  return up < 100000 ? up.toLocaleString("en-US", { maximumSignificantDigits: Math.max(3, digits) }) : up.toExponential(1).replace("e+", "e");
};

// 1e-5 and not 1e-05, 2.1e9 and not 2100000000
airfl.plain = (value) => {
  if (value === null || value === undefined || !isFinite(value)) return "∞";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e5 || size < 1e-3)) return value.toExponential(1).replace("e+", "e").replace(".0e", "e");
  return String(Number(value.toPrecision(4)));
};

airfl.bytes = (count) =>
  count < 1000 ? `${count} B` : count < 1e6 ? `${(count / 1e3).toFixed(1)} kB` : `${(count / 1e6).toFixed(1)} MB`;

// An answer in JSON, or an error with the server's own sentence; null: the same as before.
airfl.tags = new Map();
airfl.get = async (address, signal) => {
  const known = airfl.tags.get(address);
  const answer = await fetch(address, { signal, headers: known ? { "If-None-Match": known } : {} });
  if (answer.status === 304) return null;
  let found;
  try {
    found = await answer.json();
  } catch {
    throw new Error(`the server answered ${answer.status}, and nothing that can be read`);
  }
  if (!answer.ok) throw new Error(found.error || `the server answered ${answer.status}`);
  airfl.tags.clear();
  if (answer.headers.get("ETag")) airfl.tags.set(address, answer.headers.get("ETag"));
  return found;
};

airfl.table = (head, rows, caption) => {
  const table = airfl.make("table");
  if (caption) table.append(airfl.make("caption", {}, caption));
  const top = airfl.make("tr");
  for (const name of head) top.append(airfl.make("th", { scope: "col" }, name));
  table.append(airfl.make("thead", {}, top));
  const body = airfl.make("tbody");
  for (const row of rows) {
    const line = airfl.make("tr");
    row.forEach((cell, place) =>
      line.append(airfl.make(place ? "td" : "th", place ? {} : { scope: "row" }, cell)),
    );
    body.append(line);
  }
  table.append(body);
  return airfl.make("div", { class: "scroll" }, table);
};

document.addEventListener("click", async (event) => {
  const name = event.target.dataset && event.target.dataset.copy;
  if (!name) return;
  const field = airfl.byId(name);
  try {
    await navigator.clipboard.writeText(field.value);
  } catch {
    field.select();
    document.execCommand("copy");
  }
  const before = event.target.textContent;
  event.target.textContent = "Copied";
  setTimeout(() => (event.target.textContent = before), 1500);
});
