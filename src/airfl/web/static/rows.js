// Which rows, in which order, which page: what web/rows.py does on the server, for pages that are read from a disk.
"use strict";

(() => {
  const WORD = /^([A-Za-z0-9_.-]+)(<=|>=|=|<|>)(.+)$/;
  const NUMBER = /^-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?$/;
  const COLUMNS = ["folder", "name", "scheme", "status", "kind", "trials", "failed", "rounds", "accuracy", "epsilon"];
  const PAGE_ROWS = 100;

  const number = (text) => {
    if (text === "∞" || text === "inf") return Infinity;
    if (text.endsWith("%") && NUMBER.test(text.slice(0, -1))) return Number(text.slice(0, -1)) / 100;
    return NUMBER.test(text) ? Number(text) : text;
  };

  const valueOf = (row, name) => {
    if (COLUMNS.includes(name)) {
      const value = row[name];
      if (name === "epsilon" && value === null) return row.trials ? Infinity : null;
      return value === undefined ? null : value;
    }
    let found = Object.hasOwn(row.settings, name) ? row.settings[name] : undefined;
    if (found === undefined) {
      const key = Object.keys(row.settings).find((key) => {
        const last = key.includes(".") ? key.slice(key.indexOf(".") + 1) : "";
        return last === name || last === `num_${name}`;
      });
      found = key && row.settings[key];
    }
    return found === undefined ? null : number(found.toLowerCase());
  };

  const textOf = (row) =>
    [row.folder, row.name, row.scheme, row.status, row.kind, ...Object.entries(row.settings).map(([key, value]) => `${key}=${value}`)]
      .join(" ")
      .toLowerCase();

  const testOf = (word) => {
    const found = word.match(WORD);
    if (!found) return (row) => textOf(row).includes(word);
    const [, name, sign, text] = found;
    const wanted = number(text);
    return (row) => {
      const value = valueOf(row, name);
      if (value === null) return false;
      if (sign === "=") return (typeof value === "string" ? value.toLowerCase() : value) === wanted;
      if (typeof value !== "number" || typeof wanted !== "number") return false;
      return { "<": value < wanted, ">": value > wanted, "<=": value <= wanted, ">=": value >= wanted }[sign];
    };
  };

  const chosen = (rows, wanted, folder) => {
    const tests = wanted.toLowerCase().split(/\s+/).filter(Boolean).slice(0, 20).map(testOf);
    return rows.filter((row) => (!folder || row.folder === folder || row.folder.startsWith(`${folder}/`)) && tests.every((test) => test(row)));
  };

  const ordered = (rows, by) => {
    if (!by) return rows;
    const name = by.replace(/^-+/, "");
    const down = by.startsWith("-") ? -1 : 1;
    const known = rows.map((row) => [valueOf(row, name), row]);
    const sorted = (kind, key) =>
      known
        .filter(([value]) => typeof value === kind)
        .map(([value, row]) => [key(value), row])
        .sort(([a], [b]) => down * (a < b ? -1 : a > b ? 1 : 0))
        .map(([, row]) => row);
    return [...sorted("number", (v) => v), ...sorted("string", (v) => v.toLowerCase()), ...known.filter(([v]) => v === null).map(([, row]) => row)];
  };

  const paged = (rows, page) => {
    const pages = Math.max(1, Math.ceil(rows.length / PAGE_ROWS));
    const at = Math.min(Math.max(1, page), pages);
    return { rows: rows.slice((at - 1) * PAGE_ROWS, at * PAGE_ROWS), page: at, pages };
  };

  window.airfl = Object.assign(window.airfl || {}, { chosen, ordered, paged });
})();
