"use strict";
(() => {
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("report-data").textContent);
  const ROWS_SHOWN = 25;
  const COLORS = 10;

  // Everything that is text goes into the page as text.
  function make(tag, name, text) {
    const element = document.createElement(tag);
    if (name) element.className = name;
    if (text !== undefined) element.textContent = text;
    return element;
  }

  const whole = new Intl.NumberFormat("en");
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
  const compact = (value) => short.format(value);

  function bytes(value) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (value >= 1024 && unit < units.length - 1) {
      value /= 1024;
      unit += 1;
    }
    return `${unit && value < 100 ? value.toFixed(1).replace(/\.0$/, "") : Math.round(value)} ${units[unit]}`;
  }

  // --- tables

  function button(text, pressed) {
    const element = make("button", "", text);
    element.type = "button";
    element.setAttribute("aria-pressed", String(pressed));
    return element;
  }

  function enhance(table) {
    const body = table.tBodies[0];
    const rows = Array.from(body.rows);
    if (rows.length < 2) return;
    const texts = rows.map((row) => row.textContent.toLowerCase());
    const collator = new Intl.Collator("en", { numeric: true });
    let order = rows.map((_, number) => number);
    let wanted = "";
    let showsAll = false;

    const count = make("output");
    const search = make("input");
    const all = make("button");
    all.type = "button";
    search.type = "search";
    search.name = `search-${table.id}`;
    search.placeholder = "Search";
    search.setAttribute("aria-label", `Search: ${table.caption.textContent}`);

    function show() {
      const found = order.filter((number) => texts[number].includes(wanted));
      const shown = showsAll ? found : found.slice(0, ROWS_SHOWN);
      body.replaceChildren(...shown.map((number) => rows[number]));
      count.textContent = shown.length === rows.length ? `${whole.format(rows.length)} rows`
        : `${whole.format(shown.length)} of ${whole.format(found.length)} rows${wanted ? " found" : ""}`;
      all.hidden = found.length <= ROWS_SHOWN;
      all.textContent = showsAll ? `Show ${ROWS_SHOWN}` : `Show all ${whole.format(found.length)}`;
    }

    Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
      const press = make("button");
      press.type = "button";
      press.append(...head.childNodes);
      head.append(press);
      const isText = ["text", "words", "sentence"].includes(head.dataset.kind);
      press.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : !isText;
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const keys = rows.map((row) => {
          const cell = row.cells[column];
          if (isText) return cell.textContent;
          return cell.dataset.v === "" ? -Infinity : Number(cell.dataset.v);
        });
        order.sort((a, b) => {
          const way = isText ? collator.compare(keys[a], keys[b]) : keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : 0;
          return down ? -way : way;
        });
        show();
      });
    });

    if (rows.length > 10) {
      const tools = make("div", "tools");
      tools.append(search, count, all);
      table.parentElement.before(tools);
      search.addEventListener("input", () => {
        wanted = search.value.trim().toLowerCase();
        show();
      });
      all.addEventListener("click", () => {
        showsAll = !showsAll;
        show();
      });
    } else {
      showsAll = true;
    }
    show();
  }

  // --- plots

  const drawn = [];
  const color = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const lineColor = (number) => color(`--line-${number % COLORS}`);

  function clock(seconds, step) {
    const text = new Date(seconds * 1000).toISOString();
    if (step >= 86400) return step >= 28 * 86400 ? text.slice(0, 10) : text.slice(5, 10);
    return step >= 60 ? text.slice(11, 16) : text.slice(11, 19);
  }

  const moment = (seconds) => `${new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`;

  function timeLabels(plot, splits, axis, space, step) {
    let day = "";
    return splits.map((seconds) => {
      const text = clock(seconds, step);
      const today = new Date(seconds * 1000).toISOString().slice(5, 10);
      if (step >= 86400 || today === day) return text;
      day = today;
      return `${text}\n${today}`;
    });
  }

  // Steps of axes: of times whole seconds, of counts whole numbers, of bytes powers of two.
  const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800,
    345600, 604800, 1209600, 2419200, 7257600, 14515200, 31536000, 63072000];
  const POWERS = Array.from({ length: 60 }, (_, power) => 2 ** power);
  const WHOLES = Array.from({ length: 48 }, (_, place) => [1, 2, 5][place % 3] * 10 ** Math.floor(place / 3));

  function axes(time, format) {
    const plain = {
      stroke: color("--quiet"),
      font: "12px system-ui, sans-serif",
      grid: { stroke: color("--grid"), width: 1 },
      ticks: { stroke: color("--grid"), width: 1 },
    };
    return [
      { ...plain, values: time ? timeLabels : null, incrs: time ? SECONDS : WHOLES, space: 70 },
      { ...plain, incrs: format === bytes ? POWERS : WHOLES, values: (_, splits) => splits.map((value) => (value === null ? "" : format(value))), size: 68 },
    ];
  }

  function frame(holder, height, options, values) {
    const area = make("div");
    holder.append(area);
    const state = { plot: null };
    function render() {
      if (state.plot) state.plot.destroy();
      state.plot = new uPlot({
        width: Math.max(area.clientWidth, 200), height, tzDate: (s) => uPlot.tzDate(new Date(s * 1000), "Etc/UTC"),
        cursor: { points: { size: 6 } }, ...options(),
      }, values(), area);
    }
    render();
    drawn.push(render);
    new ResizeObserver(() => {
      const width = Math.max(area.clientWidth, 200);
      if (state.plot && state.plot.width !== width) state.plot.setSize({ width, height });
    }).observe(area);
    return render;
  }

  const stepped = uPlot.paths.stepped({ align: 1 });
  const barred = uPlot.paths.bars({ size: [0.9, 60], align: 1 });
  const columns = uPlot.paths.bars({ size: [0.85, 90] });

  // The edges of steps in seconds; a line ends where its last step does.
  function edges(start, step, count) {
    return Array.from({ length: count + 1 }, (_, number) => (start + number * step) / 1000);
  }

  function traffic(holder, figures) {
    const count = figures.lines.length ? figures.lines[0].messages.length : 0;
    let unit = "messages";
    const tools = make("div", "tools");
    const presses = { messages: button("Messages", true), bytes: button("Bytes", false) };
    tools.append(presses.messages, presses.bytes, make("span", "", matchMedia("(hover: hover)").matches
      ? "Drag to zoom, double-click to see all, click a name to hide it." : "Tap a name to hide it."));
    holder.append(tools);
    const format = (value) => (unit === "bytes" ? bytes(value) : whole.format(value));
    const options = () => ({
      axes: axes(true, unit === "bytes" ? bytes : compact),
      scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.05 : 1] } },
      series: [
        { label: "From", value: (_, seconds) => (seconds === null ? "–" : moment(seconds)) },
        ...figures.lines.map((line, number) => ({
          label: line.name || "others",
          stroke: line.name ? lineColor(number) : color("--others"),
          fill: figures.lines.length === 1 ? `${lineColor(number)}33` : undefined,
          dash: line.name && number < COLORS / 2 ? undefined : [6, 3],
          width: 1.75, paths: stepped, points: { show: false },
          value: (_, value, series, place) => (value === null || place === count ? "–" : format(value)),
        })),
      ],
    });
    const values = () => [
      edges(figures.startMs, figures.stepMs, count),
      ...figures.lines.map((line) => [...line[unit], line[unit][count - 1]]),
    ];
    const render = frame(holder, 320, options, values);
    for (const [name, press] of Object.entries(presses)) {
      press.addEventListener("click", () => {
        unit = name;
        for (const [other, each] of Object.entries(presses)) each.setAttribute("aria-pressed", String(other === name));
        render();
      });
    }
  }

  function sizes(holder, bars) {
    holder.append(make("h3", "", "Messages by stored size"));
    const places = bars.map((_, number) => number);
    const label = (number) => (bars[number] === undefined ? "" : bytes(bars[number][1] + 1));
    const options = () => {
      const [x, y] = axes(false, compact);
      return {
        axes: [{ ...x, splits: () => places, values: (plot, splits) => {
          const every = Math.ceil((splits.length * 62) / Math.max(plot.bbox.width / devicePixelRatio, 1));
          return splits.map((number) => (number % every ? "" : `< ${label(number)}`));
        } }, y],
        scales: { x: { time: false, range: [-0.6, bars.length - 0.4] }, y: { range: (_, low, high) => [0, high * 1.05] } },
        series: [
          { label: "Smaller than", value: (_, number) => (number === null ? "–" : label(number)) },
          { label: "Messages", stroke: color("--bar"), fill: color("--bar"), paths: columns, points: { show: false },
            value: (_, value) => (value === null ? "–" : whole.format(value)) },
        ],
      };
    };
    frame(holder, 220, options, () => [places, bars.map((bar) => bar[2])]);
  }

  function delayed(holder, figures) {
    holder.append(make("h3", "", "Messages by the time at which they are due"));
    const count = figures.counts.length;
    const options = () => ({
      axes: axes(true, compact),
      scales: { y: { range: (_, low, high) => [0, high * 1.05] } },
      series: [
        { label: "From", value: (_, seconds) => (seconds === null ? "–" : moment(seconds)) },
        { label: "Due", stroke: color("--bar"), fill: color("--bar"), paths: barred, points: { show: false },
          value: (_, value) => (value === null || value === undefined ? "–" : whole.format(value)) },
      ],
    });
    frame(holder, 200, options, () => [edges(figures.startMs, figures.stepMs, count), [...figures.counts, 0]]);
  }

  function disk(holder, stores) {
    holder.append(make("h3", "", "Bytes of commitlog files from now on, by the forecast"));
    const options = () => ({
      axes: axes(true, bytes),
      scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      series: [
        { label: "At", value: (_, seconds) => (seconds === null ? "–" : moment(seconds)) },
        ...stores.map((store, number) => ({
          label: store.name, stroke: lineColor(number), fill: stores.length === 1 ? `${lineColor(number)}33` : undefined,
          width: 1.75, paths: stepped, points: { show: false }, value: (_, value) => (value === null ? "–" : bytes(value)),
        })),
      ],
    });
    const times = [...new Set(stores.flatMap((store) => store.atMs))].sort((a, b) => a - b);
    const along = (store) => {
      const known = new Map(store.atMs.map((at, number) => [at, store.bytes[number]]));
      return times.map((at) => (known.has(at) ? known.get(at) : null));
    };
    frame(holder, 220, options, () => [times.map((at) => at / 1000), ...stores.map(along)]);
  }

  function draw(name, figures, plot) {
    const holder = document.getElementById(`plot-${name}`);
    if (holder && figures && (!Array.isArray(figures) || figures.length)) plot(holder, figures);
  }

  const redraw = () => drawn.forEach((render) => render());

  document.querySelectorAll("table.data").forEach(enhance);
  draw("traffic", data.traffic, traffic);
  draw("sizes", data.sizes, sizes);
  draw("delayed", data.delayed, delayed);
  draw("disk", data.disk, disk);

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("beforeprint", () => {
    root.classList.add("printing");
    redraw();
  });
  addEventListener("afterprint", () => {
    root.classList.remove("printing");
    redraw();
  });
})();
