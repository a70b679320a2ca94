// Lines in SVG, coloured by the style sheet; read by pointer, by arrow keys, and as a table.
"use strict";

(() => {
  const airfl = (window.airfl = window.airfl || {});
  const SPACE = "http://www.w3.org/2000/svg";
  const [NARROWEST, WIDEST] = [280, 760];
  const drawn = new Map();
  const EDGE = { left: 62, right: 14, top: 10, bottom: 44 };

  const draw = (tag, attributes, ...children) => {
    const element = document.createElementNS(SPACE, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
    element.append(...children);
    return element;
  };

  const round = (value) => Math.round(100 * value) / 100;

  // Ticks on round numbers: [values]
  const ticks = (low, high, log) => {
    if (log) {
      const found = [];
      const first = Math.ceil(Math.log10(low) - 1e-9);
      const last = Math.floor(Math.log10(high) + 1e-9);
      const every = Math.max(1, Math.ceil((last - first) / 6));
      for (let power = first; power <= last; power += every) found.push(10 ** power);
      if (found.length < 3)
        for (let power = first - 1; power <= last; power++)
          for (const part of [2, 5]) if (part * 10 ** power >= low && part * 10 ** power <= high) found.push(part * 10 ** power);
      return found.sort((a, b) => a - b);
    }
    const rough = (high - low) / 5 || 1;
    const unit = 10 ** Math.floor(Math.log10(rough));
    const step = unit * [1, 2, 5, 10].find((part) => part * unit >= rough - 1e-12 * unit);
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(Number((k * step).toPrecision(12)));
    return found;
  };

  const axis = (values, options, from, to) => {
    const good = values.filter((value) => value !== null && isFinite(value) && (!options.log || value > 0));
    let [low, high] = good.length ? [Math.min(...good), Math.max(...good)] : [options.log ? 1 : 0, options.log ? 10 : 1];
    if (options.range) [low, high] = options.range;
    else if (options.log) [low, high] = low === high ? [low / 2, high * 2] : [low, high];
    else {
      const pad = low === high ? Math.abs(low) * 0.1 || 0.5 : 0.05 * (high - low);
      [low, high] = [options.zero && low >= 0 && low < 0.5 * high ? 0 : low - pad, high + pad];
      if (options.exact) [low, high] = [Math.min(...good), Math.max(...good)];
      if (low === high) [low, high] = [low - 0.5, high + 0.5];
    }
    const bend = options.log ? Math.log10 : (value) => value;
    const at = (value) => from + ((bend(value) - bend(low)) / (bend(high) - bend(low))) * (to - from);
    return { at, low, high, ticks: ticks(low, high, options.log), known: (v) => v !== null && isFinite(v) && (!options.log || v > 0) };
  };

  const path = (points) => {
    let text = "";
    let pen = "M";
    for (const [x, y] of points) {
      if (x === null || y === null) {
        pen = "M";
        continue;
      }
      text += `${pen}${round(x)} ${round(y)}`;
      pen = "L";
    }
    return text;
  };

  // options: label, x: {label, log, text}, y: {…}, lines: [{label, x, y, low, high, kind, end}], point: {x, y, label}
  airfl.chart = (place, options) => {
    const WIDTH = Math.round(Math.min(WIDEST, Math.max(NARROWEST, place.clientWidth || 560)));
    const height = options.height || 330;
    const xs = options.lines.flatMap((line) => line.x).concat(options.point ? [options.point.x] : []);
    const ys = options.lines.flatMap((line) => line.y.concat(line.low || [], line.high || []));
    if (options.point) ys.push(options.point.y);
    const right = WIDTH - EDGE.right - (options.margin || 0);
    const x = axis(xs, { exact: true, ...options.x }, EDGE.left, right);
    const y = axis(ys, options.y, height - EDGE.bottom, EDGE.top);
    const svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "chart", role: "img", "aria-label": options.label, tabindex: 0 });
    const say = { x: options.x.text || airfl.plain, y: options.y.text || airfl.plain };
    const grid = draw("g", { class: "grid" });
    for (const tick of x.ticks) {
      grid.append(draw("line", { x1: round(x.at(tick)), x2: round(x.at(tick)), y1: EDGE.top, y2: height - EDGE.bottom }));
      grid.append(draw("text", { x: round(x.at(tick)), y: height - EDGE.bottom + 16, "text-anchor": "middle" }, say.x(tick)));
    }
    for (const tick of y.ticks) {
      grid.append(draw("line", { x1: EDGE.left, x2: right, y1: round(y.at(tick)), y2: round(y.at(tick)) }));
      grid.append(draw("text", { x: EDGE.left - 6, y: round(y.at(tick)) + 4, "text-anchor": "end" }, say.y(tick)));
    }
    svg.append(grid);
    svg.append(draw("text", { class: "name", x: (EDGE.left + right) / 2, y: height - 8, "text-anchor": "middle" }, options.x.label));
    const middle = (EDGE.top + height - EDGE.bottom) / 2;
    svg.append(draw("text", { class: "name", x: 14, y: middle, "text-anchor": "middle", transform: `rotate(-90 14 ${middle})` }, options.y.label));
    const ends = options.lines.map((line, number) => drawLine(svg, line, line.number ?? number, x, y, height)).filter(Boolean);
    let above = -Infinity; // names at the ends of lines keep off each other
    for (const end of ends.sort((a, b) => a.y - b.y)) {
      above = Math.max(end.y, above + 13);
      svg.append(draw("text", { class: `end ${end.kind}`, x: round(end.x), y: round(above) }, end.text));
    }
    if (options.point && x.known(options.point.x) && y.known(options.point.y)) {
      const [cx, cy] = [round(x.at(options.point.x)), round(y.at(options.point.y))];
      svg.append(draw("path", { class: "star", d: star(cx, cy), "data-x": options.point.x, "data-y": options.point.y }));
      const before = cx > WIDTH / 2;
      const beside = { x: cx + (before ? -14 : 14), y: cy < 30 ? cy + 22 : cy - 10, "text-anchor": before ? "end" : "start" };
      svg.append(draw("text", { class: "here", ...beside }, options.point.label));
    }
    place.replaceChildren(svg);
    if (options.read !== false) reader(place, svg, options, x, y, say, height, WIDTH);
    drawn.set(place, { options, width: place.clientWidth });
    return svg;
  };

  const drawLine = (svg, line, number, x, y, height) => {
    const kind = line.kind || `s${number % 8}`;
    const points = line.x.map((value, k) => (x.known(value) && y.known(line.y[k]) ? [x.at(value), y.at(line.y[k])] : [null, null]));
    if (line.fill) {
      const known = points.filter((point) => point[0] !== null);
      const floor = height - EDGE.bottom;
      if (known.length) svg.append(draw("path", { class: `area ${kind}`, d: `${path(known)}L${round(known[known.length - 1][0])} ${floor}L${round(known[0][0])} ${floor}Z` }));
    }
    if (line.low && line.high) {
      const good = line.x.map((_, k) => k).filter((k) => x.known(line.x[k]) && y.known(line.low[k]) && y.known(line.high[k]));
      const up = good.map((k) => [x.at(line.x[k]), y.at(line.high[k])]);
      const down = good.map((k) => [x.at(line.x[k]), y.at(line.low[k])]).reverse();
      if (good.length > 1) svg.append(draw("path", { class: `band ${kind}`, d: `${path(up)}${path(down).replace("M", "L")}Z` }));
    }
    const title = draw("title", {}, line.label);
    svg.append(draw("path", { class: `line ${kind}`, d: path(points) }, title));
    if (points.filter((point) => point[0] !== null).length === 1) {
      const [cx, cy] = points.find((point) => point[0] !== null);
      svg.append(draw("circle", { class: `dot ${kind}`, cx: round(cx), cy: round(cy), r: 4 }));
    }
    const last = points.filter((point) => point[0] !== null).pop();
    return line.end && last ? { x: last[0] + 5, y: last[1] + 4, kind, text: line.end } : null;
  };

  const star = (cx, cy) => {
    let text = "";
    for (let k = 0; k < 10; k++) {
      const size = k % 2 ? 4.2 : 10;
      const angle = (Math.PI * k) / 5 - Math.PI / 2;
      text += `${k ? "L" : "M"}${round(cx + size * Math.cos(angle))} ${round(cy + size * Math.sin(angle))}`;
    }
    return `${text}Z`;
  };

  // Letters keep their size: another width is another drawing.
  window.addEventListener("resize", () => {
    for (const [place, { options, width }] of drawn) {
      if (!place.isConnected) drawn.delete(place);
      else if (place.clientWidth && place.clientWidth !== width) airfl.chart(place, options);
    }
  });

  // A ruler that reads values off: pointer or arrow keys.
  const reader = (place, svg, options, x, y, say, height, width) => {
    const places = [...new Set(options.lines.flatMap((line) => line.x))].filter(x.known).sort((a, b) => a - b);
    if (!places.length) return;
    const ruler = draw("line", { class: "ruler", y1: EDGE.top, y2: height - EDGE.bottom, x1: -9, x2: -9 });
    svg.append(ruler);
    const said = document.createElement("output");
    said.className = "reading";
    said.textContent = "Point at the lines, or use the arrow keys, to read values.";
    place.append(said);
    let current = places.length - 1;
    const read = (number) => {
      current = Math.min(places.length - 1, Math.max(0, number));
      const at = places[current];
      ruler.setAttribute("x1", round(x.at(at)));
      ruler.setAttribute("x2", round(x.at(at)));
      const parts = options.lines.flatMap((line) => {
        const k = line.x.indexOf(at);
        return k < 0 ? [] : [`${line.short || line.label}: ${y.known(line.y[k]) ? say.y(line.y[k]) : "∞"}`];
      });
      said.textContent = `${options.x.short || options.x.label} ${say.x(at)}: ${parts.join("; ")}`;
    };
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const where = ((event.clientX - box.left) / box.width) * width;
      let best = 0;
      places.forEach((value, k) => {
        if (Math.abs(x.at(value) - where) < Math.abs(x.at(places[best]) - where)) best = k;
      });
      read(best);
    });
    svg.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: current - 1, ArrowRight: current + 1, Home: 0, End: places.length - 1 };
      if (!(event.key in moves)) return;
      event.preventDefault();
      read(moves[event.key]);
    });
  };
})();
