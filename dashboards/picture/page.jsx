// Draws the panels of a dashboard with Grafana's own components, from answers that Prometheus gave (see picture.py).
//
// The server of Grafana is not involved, so what it does between a query and a component is done here: legends, field
// settings and overrides. The heatmap panel is not part of Grafana's library of components; it is drawn here in its colours.

import "@fontsource/inter/latin-400.css";
import "@fontsource/inter/latin-500.css";
import { createTheme, dateTime, FieldType, getDisplayProcessor, getValueFormat, ThemeContext, toDataFrame } from "@grafana/data";
import { BarGauge, BigValue, GlobalStyles, PanelChrome, TimeSeries, VizLayout } from "@grafana/ui";
import * as chromatic from "d3-scale-chromatic";
import React, { useLayoutEffect, useRef } from "react";
import { createRoot } from "react-dom/client";

const theme = createTheme({ colors: { mode: "dark" } });
const { panels, answers, from, to, width, heading, note } = window.DATA;
const GAP = 8, ROW = 30;
const column = (width - 2 * GAP - 23 * GAP) / 24;
const range = { from: dateTime(from * 1000), to: dateTime(to * 1000), raw: { from: dateTime(from * 1000), to: dateTime(to * 1000) } };

// A field's settings: the panel's defaults, and what the overrides say of this legend.
function settings(panel, legend) {
  const config = structuredClone(panel.fieldConfig.defaults);
  for (const { matcher, properties } of panel.fieldConfig.overrides) {
    const meant = matcher.id === "byName" ? matcher.options === legend : new RegExp(`^(?:${matcher.options})$`).test(legend);
    if (!meant) continue;
    for (const { id, value } of properties) {
      if (id.startsWith("custom.")) config.custom[id.slice(7)] = value;
      else config[id] = value;
    }
  }
  if (config.color?.fixedColor === "text") config.color.fixedColor = theme.colors.text.primary;
  return { ...config, displayName: legend };
}

function frames(panel) {
  let series = 0;
  return answers[panel.id].map(({ legend, times, values }) => {
    const config = settings(panel, legend);
    const frame = toDataFrame({ fields: [
      { name: "Time", type: FieldType.time, values: times.map((t) => t * 1000), config: {} },
      { name: legend, type: FieldType.number, values, config },
    ] });
    frame.fields[1].state = { seriesIndex: series++, displayName: legend };
    frame.fields[0].display = getDisplayProcessor({ field: frame.fields[0], theme, timeZone: "utc" });
    frame.fields[1].display = getDisplayProcessor({ field: frame.fields[1], theme, timeZone: "utc" });
    return frame;
  });
}

function Lines({ panel, width, height }) {
  const { legend } = panel.options;
  return <TimeSeries frames={frames(panel)} timeRange={range} timeZone="utc" width={width} height={height}
    legend={{ ...legend, calcs: [] }} />;
}

function Stat({ panel, width, height }) {
  const all = frames(panel);
  const each = width / all.length;
  return <div style={{ display: "flex" }}>{all.map((frame, index) => {
    const field = frame.fields[1];
    const value = { ...field.display(field.values.at(-1)), title: field.config.displayName };
    const sparkline = panel.options.graphMode === "area" && field.values.length > 1 ? { x: frame.fields[0], y: field } : undefined;
    return <BigValue key={index} value={value} width={each} height={height} theme={theme} sparkline={sparkline} count={all.length}
      colorMode={panel.options.colorMode} graphMode={panel.options.graphMode} justifyMode={panel.options.justifyMode} textMode={panel.options.textMode} />;
  })}</div>;
}

// One bar below the other, with its name to the left.
function Bars({ panel, width, height }) {
  const all = frames(panel).map((frame) => frame.fields[1]);
  const names = Math.max(...all.map((field) => field.config.displayName.length)) * 8 + 10;
  const { displayMode, valueMode, showUnfilled, maxVizHeight } = panel.options;
  const each = Math.min(maxVizHeight, (height - GAP * (all.length - 1)) / all.length);
  return <div style={{ display: "flex", flexDirection: "column", justifyContent: "space-around", height }}>{all.map((field, index) => {
    const value = { ...field.display(field.values.at(-1)), title: field.config.displayName };
    return <div key={index} style={{ display: "flex", alignItems: "center" }}>
      <span style={{ width: names }}>{value.title}</span>
      <BarGauge value={{ ...value, title: undefined }} field={field.config} display={field.display} width={width - names} height={each} theme={theme}
        orientation="horizontal" displayMode={displayMode} valueDisplayMode={valueMode} showUnfilled={showUnfilled} itemSpacing={8} lcdCellWidth={12} />
    </div>;
  })}</div>;
}

// Cumulative buckets in, a column for each time and a row for each bucket out, as Grafana's heatmap does it.
function Heatmap({ panel, width, height }) {
  const canvas = useRef();
  const { color } = panel.options;
  const format = getValueFormat(panel.fieldConfig.defaults.unit);
  const label = (edge) => { if (edge === Infinity) return "+Inf"; const { text, suffix } = format(edge); return `${text}${suffix ?? ""}`; };
  useLayoutEffect(() => {
    const buckets = answers[panel.id].map((one) => ({ ...one, edge: one.legend === "+Inf" ? Infinity : Number(one.legend) })).sort((a, b) => a.edge - b.edge);
    const columns = new Map();
    buckets.forEach(({ times, values }, row) => times.forEach((t, i) => {
      if (!columns.has(t)) columns.set(t, new Array(buckets.length).fill(0));
      columns.get(t)[row] = values[i] ?? 0;
    }));
    let counts = [...columns].map(([t, upTo]) => [t, upTo.map((n, row) => Math.max(0, n - (upTo[row - 1] ?? 0)))]);
    // Rows that nothing falls into, above the highest and below the lowest one that has something, are left out of the picture.
    const used = buckets.map((_, row) => counts.some(([, column]) => column[row] > 1e-9));
    const first = Math.max(0, used.indexOf(true) - 1), last = used.lastIndexOf(true);
    const edges = buckets.slice(first, last + 1).map((one) => one.edge);
    counts = counts.map(([t, column]) => [t, column.slice(first, last + 1)]);
    const most = Math.max(...counts.flatMap(([, column]) => column));
    const dpr = window.devicePixelRatio, at = canvas.current, paint = at.getContext("2d");
    at.width = width * dpr; at.height = height * dpr;
    paint.scale(dpr, dpr);
    paint.font = "12px Inter"; paint.textBaseline = "middle";
    const left = 50, bottom = 24, across = width - left - 8, down = height - bottom - 6, row = down / edges.length;
    const x = (t) => left + (across * (t - from)) / (to - from), y = (index) => 6 + down - row * (index + 1);
    const scheme = chromatic[`interpolate${color.scheme}`];
    const step = counts.length > 1 ? counts[1][0] - counts[0][0] : 1;
    for (const [t, column] of counts) {
      column.forEach((n, index) => {
        if (n <= 1e-9) return;
        const share = Math.round((n / most) ** color.exponent * (color.steps - 1)) / (color.steps - 1);
        paint.fillStyle = scheme(1 - share); // Grafana turns a scheme round in its dark theme: the most is the brightest
        const begin = Math.max(left, x(t - step));
        paint.fillRect(begin + 0.5, y(index) + 0.5, x(t) - begin - 1, row - 1);
      });
    }
    paint.fillStyle = theme.colors.text.primary;
    paint.textAlign = "right";
    const every = Math.ceil(edges.length / (down / 18));
    edges.forEach((edge, index) => index % every === 0 && paint.fillText(label(edge), left - 6, y(index) + row / 2));
    paint.textAlign = "center";
    const apart = Math.ceil((to - from) / (across / 90) / 30) * 30; // seconds, for labels of some 90 pixels
    for (let t = Math.ceil(from / apart) * apart; t <= to; t += apart) {
      const time = new Date(t * 1000).toISOString().slice(11, 19);
      if (x(t) > left + 25 && x(t) < width - 30) paint.fillText(time, x(t), height - 10);
    }
  });
  return <canvas ref={canvas} style={{ width, height }} />;
}

const KINDS = { bargauge: Bars, timeseries: Lines, stat: Stat, heatmap: Heatmap };

function Board() {
  return <div style={{ position: "relative", width, background: theme.colors.background.canvas }}>
    <div style={{ position: "absolute", left: GAP + 4, top: 10, right: GAP + 4, display: "flex", justifyContent: "space-between", alignItems: "baseline" }}>
      <span style={{ fontSize: 18, fontWeight: 500 }}>{heading}</span>
      <span style={{ fontSize: 12, color: theme.colors.text.secondary }}>{note}</span>
    </div>
    {panels.map((panel) => {
      const { x, y, w, h } = panel.gridPos;
      const place = { position: "absolute", left: GAP + x * (column + GAP), top: 44 + y * (ROW + GAP), width: w * column + (w - 1) * GAP, height: h * ROW + (h - 1) * GAP };
      if (panel.type === "row") return <div key={panel.id} style={{ ...place, fontSize: 16, fontWeight: 500, paddingLeft: 4, lineHeight: `${ROW}px` }}>{panel.title}</div>;
      const Kind = KINDS[panel.type];
      return <div key={panel.id} style={place}>
        <PanelChrome title={panel.title} width={place.width} height={place.height}>
          {(innerWidth, innerHeight) => <Kind panel={panel} width={innerWidth} height={innerHeight} />}
        </PanelChrome>
      </div>;
    })}
  </div>;
}

document.fonts.load("12px Inter").then(() => document.fonts.load("500 12px Inter")).then(() =>
  createRoot(document.getElementById("root")).render(
    <ThemeContext.Provider value={theme}><GlobalStyles isExtensionSidebarOpen={false} /><Board /></ThemeContext.Provider>));
