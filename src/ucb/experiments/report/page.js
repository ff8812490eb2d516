"use strict";
const charts = JSON.parse(document.getElementById("charts").textContent);
const menu = document.getElementById("menu");
const dark = matchMedia("(prefers-color-scheme: dark)");
const touch = matchMedia("(pointer: coarse)").matches;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

// Lines are named below a chart; how many rows that takes depends on the chart's width.
function legendRows(traces, width) {
  const widths = traces.map((trace) => 50 + 7 * (trace.name || "").length);
  const columns = Math.max(1, Math.floor(width / Math.max(...widths)));
  return Math.ceil(traces.length / columns);
}

const LETTER = 6.6, LINE = 15, MOST_LINES = 3;

// The middle goes first: the beginning of a name, and its end, tell most.
function cut(word, room) {
  const kept = room - 1, end = Math.floor(kept / 2);
  return word.length <= room ? word : word.slice(0, kept - end) + "\u2026" + word.slice(word.length - end);
}

// Names at the left are wrapped, so that they leave most of a chart's width to what it shows.
function wrapped(name, width) {
  const room = Math.max(10, Math.floor(0.46 * width / LETTER)), lines = [];
  const text = name.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
  for (const word of text.split(" ").map((each) => cut(each, room))) {
    const last = lines.length - 1;
    if (last >= 0 && lines[last].length + 1 + word.length <= room) lines[last] += " " + word;
    else lines.push(word);
  }
  if (lines.length > MOST_LINES) lines.splice(MOST_LINES - 1, lines.length, cut("\u2026 " + lines.at(-1), room));
  return lines.map((line) => line.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;"));
}

// Returns how much higher a chart becomes by names of several lines.
function wrapNames(axis, width) {
  if (!axis?.ticktext) return 0;
  const names = axis.ticktext.map((name) => wrapped(name, width));
  axis.ticktext = names.map((lines) => lines.join("<br>"));
  return LINE * names.length * (Math.max(...names.map((lines) => lines.length)) - 1);
}

function themed(chart, width) {
  // "@text" stands for the colour of text, which is not the same by day and by night.
  const { data, layout, height } = JSON.parse(JSON.stringify(chart).replaceAll('"@text"', JSON.stringify(colour("text"))));
  const axis = { automargin: true, gridcolor: colour("line"), zerolinecolor: colour("line"), fixedrange: touch, ticklabelstandoff: 4 };
  const higher = wrapNames(layout.yaxis, width);
  const legend = data.length > 1 && layout.showlegend !== false;
  const below = legend ? 21 * legendRows(data, width) : 0;
  for (const side of ["xaxis", "yaxis"]) {
    layout[side] = { ...axis, ...layout[side] };
    layout[side].title = { ...layout[side].title, standoff: 8 };
  }
  return {
    data,
    layout: {
      ...layout,
      width,
      height: height + higher + below,
      showlegend: legend,
      legend: { orientation: "h", x: 0, y: 0, yref: "container", yanchor: "bottom" },
      margin: { l: 10, r: 14, t: 10, b: 44 + below },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: colour("text"), family: "system-ui, sans-serif", size: 12 },
      colorway: [1, 2, 3, 4, 5, 6, 7, 8].map((number) => colour("colour-" + number)),
      dragmode: touch ? false : "zoom",
    },
  };
}

function draw(view) {
  for (const place of view.querySelectorAll(".chart")) {
    // Plotly remembers the width of a chart that was drawn before: it is told the present one.
    const { data, layout } = themed(charts[place.dataset.chart], place.clientWidth);
    place.style.height = layout.height + "px";
    Plotly.react(place, data, layout, { displayModeBar: false });
  }
}

function chosen() {
  return document.getElementById(menu.value);
}

function show() {
  for (const view of document.querySelectorAll(".view")) view.hidden = view.id !== menu.value;
  draw(chosen());
}

function follow() {
  const wanted = location.hash.slice(1);
  if ([...menu.options].some((option) => option.value === wanted)) menu.value = wanted;
  show();
}

menu.addEventListener("change", () => { location.hash = menu.value; });
addEventListener("hashchange", follow);
dark.addEventListener("change", () => draw(chosen()));
let waiting;
addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => draw(chosen()), 150);
});
follow();
