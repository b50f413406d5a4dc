// Draws what charts.py describes, with the ECharts that comes with NiceGUI. Times are UTC.
import { echarts } from "nicegui-echart";

const drawn = new Set();
const GROUPS = ["--line-1", "--line-2", "--line-3", "--line-4", "--line-5", "--line-6", "--line-7", "--line-8"];
const KINDS = { over: "--over", quiet: "--unknown", quota: "--over", contract: "--within", rate: "--link" };
const SHOWN_LINES = 8; // in the box beside the pointer

function colour(name) {
  return getComputedStyle(document.body).getPropertyValue(name).trim();
}

function rateWords(value) {
  const power = value < 1000 ? 0 : Math.min(4, Math.floor(Math.log10(value) / 3));
  return `${Number((value / 1000 ** power).toPrecision(3))} ${["", "k", "M", "G", "T"][power]}B/s`;
}

function valueWords(data, line, value) {
  if (data.unit === "rate") return rateWords(value);
  const share = `${Math.round(100 * value)} %`;
  return line[3] ? `${share} (${rateWords(value * line[3])})` : share;
}

function clock(ms, data) {
  const text = new Date(ms).toISOString();
  return data.end - data.begin > 7200 ? text.slice(11, 16) : text.slice(11, 19);
}

// Text alone, as elements: names that people chose are in it.
function box(data, params) {
  const at = params[0].axisValue;
  const rows = params
    .filter((one) => one.value[1] !== null && one.seriesIndex < data.lines.length)
    .sort((a, b) => b.value[1] - a.value[1]);
  const found = document.createElement("div");
  const add = (text, kind) => {
    const line = found.appendChild(document.createElement("div"));
    line.textContent = text;
    if (kind) line.style.color = kind;
  };
  add(`${clock(at, data)} UTC`);
  for (const one of rows.slice(0, SHOWN_LINES)) {
    const line = data.lines[one.seriesIndex];
    add(`${line[0]}: ${valueWords(data, line, one.value[1])}`, one.color);
  }
  if (rows.length > SHOWN_LINES) add(`and ${rows.length - SHOWN_LINES} more`);
  if (!rows.length) add("not known");
  const near = (data.end - data.begin) * 8;
  for (const [second, , words] of data.marks) {
    if (Math.abs(second * 1000 - at) <= near) add(words);
  }
  return found;
}

function seriesOf(data) {
  const many = data.lines.length > 8;
  const dashes = { quota: [6, 4], contract: [2, 4] };
  return data.lines.map(([name, kind, group, , place, values]) => ({
    name,
    type: "line",
    showSymbol: false,
    step: kind === "quota" ? "end" : false,
    data: values.map((value, n) => [1000 * (data.begin + data.times[place][n]), value]),
    color: colour(KINDS[kind] ?? GROUPS[group % GROUPS.length]),
    lineStyle: {
      width: many && kind !== "over" ? 1 : 2,
      opacity: many && kind !== "over" ? 0.55 : 1,
      type: dashes[kind] ?? (name.endsWith("ingress") ? [4, 3] : "solid"),
    },
    emphasis: { focus: many ? "series" : "none" },
  }));
}

// The limit, the shades and the marks belong to a line without points.
function overlay(data, width) {
  const wide = (110 / Math.max(width, 1)) * (data.end - data.begin);
  const lines = data.marks.map(([at, kind]) => ({
    xAxis: 1000 * at,
    label: { show: false },
    lineStyle: { color: colour(kind === "Warning" ? "--near" : "--quiet"), type: "dotted", width: 1.5 },
  }));
  if (data.limit !== null) {
    lines.push({
      yAxis: data.limit,
      lineStyle: { color: colour("--over"), type: "solid", width: 2 },
      label: { formatter: "limit", position: "insideStartTop", color: colour("--over") },
    });
  }
  return {
    name: "",
    type: "line",
    data: [],
    silent: true,
    markLine: { symbol: ["none", "none"], silent: true, animation: false, data: lines },
    markArea: {
      silent: true,
      itemStyle: { color: colour("--near"), opacity: 0.16 },
      label: { position: "insideTop", color: colour("--near"), fontWeight: "bold" },
      data: data.shaded.map(([name, begin, end]) => [
        {
          name,
          xAxis: 1000 * Math.max(begin, data.begin),
          label: { show: end - Math.max(begin, data.begin) > wide },
        },
        { xAxis: 1000 * end },
      ]),
    },
  };
}

function optionsOf(data, width) {
  const quiet = { color: colour("--quiet") };
  const highest = Math.max(data.floor, ...data.lines.flatMap((line) => line[5].map((one) => one ?? 0)));
  const named = data.lines.length <= 8;
  return {
    animation: false,
    useUTC: true,
    backgroundColor: "transparent",
    textStyle: { fontFamily: "system-ui, sans-serif" },
    grid: { left: 64, right: 18, top: named ? 34 : 16, bottom: 28 },
    legend: named
      ? { show: true, top: 0, left: 56, textStyle: quiet, data: data.lines.map((line) => line[0]), type: "scroll", icon: "roundRect", itemHeight: 4 }
      : { show: false },
    tooltip: {
      trigger: "axis",
      confine: true,
      backgroundColor: colour("--paper"),
      borderColor: colour("--line"),
      textStyle: { color: colour("--ink"), fontSize: 13 },
      formatter: (params) => (params.length ? box(data, params) : ""),
    },
    xAxis: {
      type: "time",
      min: 1000 * data.begin,
      max: 1000 * data.end,
      splitNumber: width < 500 ? 3 : 8,
      axisLabel: { ...quiet, hideOverlap: true, formatter: (ms) => new Date(ms).toISOString().slice(11, data.end - data.begin < 600 ? 19 : 16) },
      axisLine: { lineStyle: { color: colour("--line") } },
    },
    yAxis: {
      type: "value",
      min: 0,
      max: data.ceiling ?? (data.unit === "share" ? Math.ceil(highest * 4) / 4 : undefined),
      interval: data.unit === "share" ? 0.25 : undefined,
      axisLabel: { ...quiet, showMaxLabel: data.ceiling === null, formatter: (one) => (data.unit === "share" ? `${Math.round(100 * one)} %` : rateWords(one)) },
      splitLine: { lineStyle: { color: colour("--line"), opacity: 0.6 } },
    },
    series: [...seriesOf(data), overlay(data, width)],
  };
}

function shown(figure) {
  const plot = figure.querySelector(".plot");
  const data = JSON.parse(figure.dataset.chart);
  let chart = echarts.getInstanceByDom(plot);
  if (!chart) {
    chart = echarts.init(plot);
    drawn.add(chart);
    new ResizeObserver(() => {
      if (chart.isDisposed() || !plot.isConnected) return;
      chart.resize();
      shown(plot.closest("[data-chart]")); // labels that have room differ
    }).observe(plot);
    let at = -1;
    plot.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      const points = chart.getOption()?.series?.[0]?.data?.length;
      if (!step || !points) return;
      event.preventDefault();
      at = at < 0 ? points - 1 : Math.min(points - 1, Math.max(0, at + step));
      chart.dispatchAction({ type: "showTip", seriesIndex: 0, dataIndex: at });
    });
    plot.addEventListener("blur", () => chart.dispatchAction({ type: "hideTip" }));
  }
  chart.setOption(optionsOf(data, plot.clientWidth), { replaceMerge: ["series"] });
  figure.dataset.drawn = data.lines.length;
}

// Draws each figure that is new or has changed; charts whose figure is gone are let go.
export function drawAll(root) {
  for (const chart of drawn) {
    if (!chart.getDom().isConnected) {
      chart.dispose();
      drawn.delete(chart);
    }
  }
  root.querySelectorAll("[data-chart]:not([data-drawn])").forEach(shown);
}

new MutationObserver(() => document.querySelectorAll("[data-chart]").forEach(shown)).observe(document.body, {
  attributes: true,
  attributeFilter: ["class"],
});
