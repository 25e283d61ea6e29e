"""Queries and panels as Grafana wants them: what all panels of a kind have in common is said here once."""

GRAFANA = "11.6.0"  # the oldest that is meant to read the dashboard

VERSION = "model, version"
PROCESS = 'job=~"$job", instance=~"$instance"'
MODEL = PROCESS + ', model=~"$model"'
GOOD = 'outcome="on_time"'
BAD = 'outcome=~"late|shed|full|failed"'
COUNTED = 'outcome=~"on_time|late|shed|full|failed"'  # the caller's faults and departures are not the server's
# With "All" chosen, $job is any job at all; this leaves those that are uncork.
IS_UNCORK = f"and on (job, instance) uncork_build_info{{{PROCESS}}}"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

GREEN, YELLOW, ORANGE, RED, PURPLE, BLUE, GREY = "green", "yellow", "orange", "red", "purple", "blue", "#8e8e8e"
OUTCOMES = {
    "on_time": GREEN,
    "late": RED,
    "shed": ORANGE,
    "full": PURPLE,
    "failed": "dark-red",
    "invalid": GREY,
    "departed": "#b0b0b0",
    "own_deadline": "#c8c8c8",
    "shutting_down": "#6e6e6e",
}
REASONS = {"full": BLUE, "ripe": GREEN, "deadline": ORANGE, "draining": GREY, "probe": PURPLE}
REFUSALS = {
    "expired": RED,
    "batch_too_late": ORANGE,
    "queue_too_long": YELLOW,
    "queue_stands": GREEN,
    "over_share": "light-blue",
    "rows_bound": PURPLE,
    "bytes_bound": BLUE,
    "unread": "dark-yellow",
    "slow_body": GREY,
    "hook": "dark-purple",
    "absent": "dark-red",
    "untold": "dark-orange",
}
STAGES = {
    "receive": GREY,
    "decode": "light-blue",
    "queue": ORANGE,
    "handover": BLUE,
    "assemble": YELLOW,
    "execute": GREEN,
    "encode": PURPLE,
}


def rate(metric, matchers=MODEL, by="model", window="$__rate_interval"):
    return f"sum by ({by}) (rate({metric}{{{matchers}}}[{window}]))"


def increase(metric, matchers, window, by="model"):
    # Not rate(): a fixed window is meant here, and a share does not care for the division by seconds.
    return f"sum by ({by}) (increase({metric}{{{matchers}}}[{window}]))"


def share(part, whole):
    return f"{part}\n/\n{whole}"


def mean(histogram, by="model", extra=""):
    matchers = MODEL + extra
    return share(rate(f"{histogram}_sum", matchers, by), rate(f"{histogram}_count", matchers, by))


def quantile(q, histogram, by="model"):
    return f"histogram_quantile({q}, {rate(f'{histogram}_bucket', by=f'le, {by}')})"


def gauge(metric, by="model", matchers=MODEL, how="max"):
    return f"{how} by ({by}) ({metric}{{{matchers}}})"


def most(expr, by="model"):
    """Of versions, or of pools: what one has too much of must not vanish beside another that has little."""
    return f"max by ({by}) (\n{expr}\n)"


def bad_share(window):
    return share(
        increase("uncork_requests_total", f"{MODEL}, {BAD}", window),
        increase("uncork_requests_total", f"{MODEL}, {COUNTED}", window),
    )


def burn(window):
    """How many times faster than the budget allows: 1 spends it exactly."""
    return f"(\n{bad_share(window)}\n) / (1 - $slo)"


def target(expr, legend, heatmap=False, instant=False):
    return {
        "expr": expr,
        "legendFormat": legend,
        "format": "heatmap" if heatmap else "time_series",
        "instant": instant,
        "range": not instant,
        "editorMode": "code",
        "datasource": DATASOURCE,
    }


def steps(*pairs):
    """Thresholds: the first colour holds below all values."""
    return {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in pairs]}


def override(matcher, option, **properties):
    return {
        "matcher": {"id": matcher, "options": option},
        "properties": [{"id": key.replace("__", "."), "value": value} for key, value in properties.items()],
    }


def colored(colors):
    return [override("byName", name, color={"mode": "fixed", "fixedColor": color}) for name, color in colors.items()]


def bound(regexp):
    """A line that values should stay below, dashed and red."""
    return override(
        "byRegexp",
        regexp,
        color={"mode": "fixed", "fixedColor": RED},
        custom__fillOpacity=0,
        custom__lineWidth=2,
        custom__lineStyle={"fill": "dash", "dash": [8, 6]},
        custom__stacking={"mode": "none", "group": "A"},
    )


def panel(
    kind,
    title,
    description,
    width,
    height,
    targets,
    unit,
    options,
    *,
    custom=None,
    overrides=(),
    thresholds=None,
    color="palette-classic",
    **defaults,
):
    for ref, query in zip("ABCDEFGH", targets):
        query["refId"] = ref
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "pluginVersion": GRAFANA,
        "gridPos": {"h": height, "w": width, "x": 0, "y": 0},
        "targets": targets,
        "options": options,
        "fieldConfig": {
            "defaults": {
                "unit": unit,
                "color": {"mode": color},
                "mappings": [],
                "thresholds": thresholds or steps((None, GREEN)),
                "custom": custom or {},
                **defaults,
            },
            "overrides": list(overrides),
        },
    }


def lines(title, description, targets, unit, *, width=6, height=8, stacked=False, line_at=False, fill=None, **rest):
    custom = {
        "drawStyle": "line",
        "lineInterpolation": "linear",
        "lineWidth": 1 if stacked else 2,
        "fillOpacity": fill if fill is not None else (60 if stacked else 8),
        "gradientMode": "none",
        "showPoints": "never",
        "spanNulls": False,
        "axisPlacement": "auto",
        "axisLabel": "",
        "scaleDistribution": {"type": "linear"},
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "line" if line_at else "off"},
    }
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    rest.setdefault("min", 0)
    return panel("timeseries", title, description, width, height, targets, unit, options, custom=custom, **rest)


def stat(title, description, targets, unit, *, width=4, text_mode="auto", spark=True, **rest):
    options = {
        "reduceOptions": {"values": False, "calcs": ["lastNotNull"], "fields": ""},
        "orientation": "auto",
        "textMode": text_mode,
        "wideLayout": True,
        "colorMode": "value",
        "justifyMode": "auto",
        "graphMode": "area" if spark else "none",
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
    }
    rest.setdefault("color", "thresholds")
    return panel("stat", title, description, width, 5, targets, unit, options, **rest)


def ranking(title, description, targets, unit, *, width=8, height=8, **rest):
    """A bar for each line, with its number: all models or instances side by side."""
    options = {
        "reduceOptions": {"values": False, "calcs": ["lastNotNull"], "fields": ""},
        "orientation": "horizontal",
        "displayMode": "basic",
        "valueMode": "color",
        "namePlacement": "left",
        "showUnfilled": True,
        "sizing": "auto",
        "minVizWidth": 8,
        "minVizHeight": 16,
        "maxVizHeight": 32,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
    }
    rest.setdefault("color", "thresholds")
    rest.setdefault("min", 0)
    return panel("bargauge", title, description, width, height, targets, unit, options, **rest)


def annotation(name, expr, title, color):
    """A mark at each moment at which a query has something to say."""
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": color,
        "expr": expr,
        "titleFormat": title,
        "step": "30s",
    }


def heatmap(title, description, histogram, unit, *, width, height, scheme):
    expr = f"sum by (le) (increase({histogram}_bucket{{{MODEL}}}[$__rate_interval]))"
    options = {
        "calculate": False,
        "cellGap": 1,
        "showValue": "never",
        "filterValues": {"le": 1e-9},
        "color": {
            "mode": "scheme",
            "scheme": scheme,
            "scale": "exponential",
            "exponent": 0.5,
            "fill": "dark-orange",
            "steps": 64,
            "reverse": False,
        },
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
        "rowsFrame": {"layout": "unknown"},  # a name in the middle of each row, the lowest too
        "cellValues": {"unit": "short"},
        "legend": {"show": True},
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "tooltip": {"mode": "single", "yHistogram": True, "showColorScale": True},
    }
    custom = {"hideFrom": {"legend": False, "tooltip": False, "viz": False}, "scaleDistribution": {"type": "linear"}}
    return panel(
        "heatmap",
        title,
        description,
        width,
        height,
        [target(expr, "{{le}}", heatmap=True)],
        unit,
        options,
        custom=custom,
    )
