// Where rows come from: the server, or the files of an export.
"use strict";

(() => {
  const live = {
    rows: (asked) => airfl.get(`api/rows?${asked}`),
    view: (ids) => airfl.get(`api/view?${new URLSearchParams(ids.map((id) => ["row", id]))}`),
    file: (file) => `files/${encodeURIComponent(file.name)}?${new URLSearchParams({ in: file.folder })}`,
  };

  const loaded = new Map();

  // A part of the export is a script that hands over its rows; a page from a disk may not fetch.
  const part = (name) =>
    loaded.get(name) ||
    loaded
      .set(
        name,
        new Promise((done, failed) => {
          const script = airfl.make("script", { src: `data/${name}.js` });
          script.addEventListener("load", () => done(window.airflParts[name]));
          script.addEventListener("error", () => failed(new Error(`data/${name}.js is missing from this export`)));
          document.head.append(script);
        }),
      )
      .get(name);

  const fromDisk = {
    rows: async (asked) => {
      const index = window.airflIndex;
      const folder = asked.get("in") || "";
      const matching = airfl.ordered(airfl.chosen(index.rows, asked.get("q") || "", folder), asked.get("sort") || "");
      const claims = Object.fromEntries(Object.entries(index.claims).filter(([name]) => !folder || name === folder));
      return { ...index, claims, total: index.rows.length, matching: matching.length, ...airfl.paged(matching, Number(asked.get("page") || 1)) };
    },
    view: async (ids) => {
      const index = window.airflIndex;
      const rows = ids.map(async (id) => {
        const row = index.rows.find((one) => one.id === id);
        if (!row) return { problem: `there is no row \`${id}\` here`, id };
        return { row, ...(await part(row.part))[id] };
      });
      return { version: index.version, live: false, rows: await Promise.all(rows) };
    },
    file: null,
  };

  window.airflParts = {};
  airfl.source = document.body.dataset.mode === "export" ? fromDisk : live;

  // Ask again and again: often while somebody is at work, rarely otherwise, never while nobody looks.
  airfl.follow = (load) => {
    const again = (busy) => setTimeout(turn, busy ? 2000 : 10000);
    const turn = async () => again(document.visibilityState === "visible" ? await load() : false);
    if (document.body.dataset.mode === "live") again(true);
  };
})();
