"use strict";
const D = JSON.parse(document.getElementById("data").textContent), O = D.operations, N = O.start.length;
const $ = (id) => document.getElementById(id), NAMES = ["ok", "failed", "unknown"];
const SPAN = Math.max(D.end, 1);
let view = [0, SPAN];

function el(name, text, css) { const made = document.createElement(name); if (text != null) made.textContent = text; if (css) made.className = css; return made; }
function svg(name, set, text) { const made = document.createElementNS("http://www.w3.org/2000/svg", name); for (const k in set) made.setAttribute(k, set[k]); if (text != null) made.textContent = text; return made; }
function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "#888"; }
function resolved(name) { const probe = el("i"); probe.style.color = `var(${name})`; document.body.append(probe); const found = getComputedStyle(probe).color; probe.remove(); return found; }
function count(n) { return n.toLocaleString("en"); }
function time(us) { return us >= 1e6 ? (us / 1e6).toLocaleString("en", {maximumFractionDigits: us < 1e8 ? 2 : 1}) + " s" : us >= 1e3 ? (us / 1e3).toLocaleString("en", {maximumFractionDigits: 1}) + " ms" : us + " µs"; }
function ended(i) { return O.took[i] < 0 ? SPAN : O.start[i] + O.took[i]; }
function words(i) { return `${D.functions[O.f[i]]}${O.key[i] < 0 ? "" : ` ${D.keys[O.key[i]]}:`} ${O.value[i] || ""}`.trim(); }

// --- words and tables

const valid = String(D.valid), said = {true: "passed", false: "broken", unknown: "unknown"}[valid] || valid;
$("badge").textContent = said; $("badge").classList.add(valid); $("title").textContent = D.run.scenario || D.name; document.title = `${said}: ${D.run.scenario || D.name}`;
$("about").textContent = [["run", D.run.run], ["target", D.run.target], ["seed", D.run.seed], ["began", D.run.began], ["began", D.run.started_ms && new Date(D.run.started_ms).toISOString().slice(0, 19).replace("T", " ") + " UTC"],
  ["versions", D.run.versions && (typeof D.run.versions === "object" ? Object.entries(D.run.versions).map((pair) => pair.join(" ")).join(", ") : D.run.versions)],
  ["", D.run.sandbox && ({root: "in namespaces, as root", user: "in namespaces, as a user", none: "no namespaces"}[D.run.sandbox] || D.run.sandbox)],
  ["here one", D.run.cannot && D.run.cannot.length ? D.run.cannot.join("; ") : null], ["left out:", D.run["left out"] && D.run["left out"].length ? D.run["left out"].join("; ") : null]].filter((each) => each[1] != null && each[1] !== "").map((each) => each.join(" ").trim()).join(" · ");
for (const [value, label] of [[count(N), "operations"], [count(D.counts[0]), "ok"], [count(D.counts[1]), "failed"], [count(D.counts[2]), "unknown"], [count(D.faults.length), "faults"], ...Object.entries(D.run.kinds || {}).map(([name, many]) => [count(many), name + (many === 1 ? "" : "s")]), ...(D.run.failovers ? [[count(D.run.failovers), "failovers"]] : []), ...Object.entries(D.run.took_over || {}).map(([role, many]) => [count(many), `another ${role}`]), ...Object.entries(D.run.came_back || {}).map(([role, many]) => [count(many), `same ${role} again`]), [D.end >= 6e8 ? Math.round(D.end / 6e7) + " min" : time(D.end), "long"], [count(Math.round(D.counts[0] / (SPAN / 1e6))), "ok a second"], [count(D.lanes.length), "clients at once"]]) {
  const tile = el("div", null, "tile"); tile.append(el("b", value), el("span", label)); $("tiles").append(tile);
}
const repeat = D.run.repeat || (D.run.command && D.run.command + (/--seed\b/.test(D.run.command) || D.run.seed == null ? "" : ` --seed ${D.run.seed}`));
if (repeat) { $("repeat").hidden = false; $("command").textContent = Array.isArray(repeat) ? repeat.join(" ") : repeat; }
if (D.shrunk) { $("script").hidden = false; $("shrunk").textContent = D.shrunk; }
if (!D.promises.length) $("promises").append(el("p", "No checker was asked: chaos check says what this history holds.", "card promise unknown"));
for (const each of D.promises) {
  const card = el("div", null, "card promise " + each.valid), list = el("ul");
  card.append(el("h3", `${each.checker}: ${{true: "holds", false: "broken", unknown: "unknown"}[String(each.valid)]}`), el("p", each.why));
  for (const broken of each.broken) list.append(el("li", `${broken.promise}: ${broken.what}`));
  if (each.prefix) list.append(el("li", `The shortest beginning that fails has ${count(each.prefix)} events.`));
  if (each.states.length) list.append(el("li", `Just before, it could be: ${each.states.join(", ")}`));
  if (list.children.length) card.append(list);
  const pairs = (of) => Object.entries(of).map(([what, many]) => `${what} ${count(many)}`).join(", ");
  card.append(el("p", `Asked: ${pairs(each.asked) || "nothing"}${Object.keys(each.counts).length ? "; also: " + pairs(each.counts) : ""}`, "soft"));
  $("promises").append(card);
}
function table(into, head, rows) {
  const made = el("table"), top = el("tr"); head.forEach((each) => top.append(el("th", each))); made.append(top);
  for (const row of rows) { const line = el("tr"); row.forEach((each) => line.append(el("td", typeof each === "number" ? count(Math.round(each)) : each, typeof each === "number" ? "n" : ""))); made.append(line); }
  $(into).append(made);
}
if (D.recovery.length) { $("recovery").hidden = false; table("recoveries", ["fault", "until", "p50", "p99", "most", "seen", "not seen"], D.recovery.map((r) => [r.fault, r.definition, r.p50, r.p99, r.most, r.seen, r.missing])); }
if (D.faults.length) { $("faults").hidden = false; table("fault-table", ["fault", "on", "from", "for"], D.faults.slice(0, 2000).map((f) => [f.name, f.on.join(", "), time(f.start), f.end > f.start ? time(f.end - f.start) : "once"])); } else $("fault-legend").hidden = true;
const longest = Math.max(1, ...D.gaps.map((gap) => gap.took));
for (const gap of D.gaps) {
  const row = el("div", null, "gap-row"), bar = el("div"), fill = el("i"); fill.style.width = `${100 * gap.took / longest}%`; bar.append(fill);
  row.append(el("b", `process ${gap.lane}`), bar, el("span", `${time(gap.took)} from ${time(gap.from)}`)); row.title = gap.lane; $("gaps").append(row);
}

// --- charts: canvases that share one stretch of time

const LEFT = 64, RIGHT = 10;
function prepare(canvas, height) {
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth;
  canvas.style.height = height + "px"; canvas.width = width * scale; canvas.height = height * scale;
  const g = canvas.getContext("2d"); g.scale(scale, scale); g.clearRect(0, 0, width, height); g.font = "12px system-ui, sans-serif";
  return [g, width, (us) => LEFT + (us - view[0]) / (view[1] - view[0]) * (width - LEFT - RIGHT)];
}
function axis(g, width, x, bottom) {
  const span = view[1] - view[0], steps = width < 500 ? 4 : 8; let step = 1;
  for (const s of [1, 2, 5]) for (let p = 1; p <= 1e12; p *= 10) if (span / (s * p) <= steps && (step === 1 || s * p < step)) step = s * p;
  g.strokeStyle = PAINT.rule; g.fillStyle = PAINT.soft; g.textAlign = "center"; g.lineWidth = 1;
  for (let at = Math.ceil(view[0] / step) * step; at <= view[1]; at += step) { const px = x(at); g.beginPath(); g.moveTo(px, 0); g.lineTo(px, bottom); g.stroke(); g.fillText(time(at), Math.min(px, width - 22), bottom + 15); }
}
const GROUPS = D.groups || [], groupOf = (name) => GROUPS.findIndex((each) => name.startsWith(each + " "));
const bands = GROUPS.map((_, at) => { const lanes = D.lanes.map((name, lane) => groupOf(name) === at ? lane : -1).filter((lane) => lane >= 0); return [Math.min(...lanes), lanes.length]; });
function shade(g, x, bottom, width, named) {
  if (GROUPS.length && !named) return;
  let free = 0; g.textAlign = "left";
  for (const fault of D.faults) {
    if (fault.end < view[0] || fault.start > view[1]) continue;
    const left = Math.max(x(fault.start), LEFT), right = Math.min(x(fault.end), width - RIGHT);
    g.globalAlpha = fault.end > fault.start ? .16 : .6; g.fillStyle = PAINT.fault; 
    const at = fault.on.length ? groupOf(fault.on[0]) : -1, [first, many] = at < 0 ? [0, 0] : bands[at];
    g.fillRect(left, at < 0 ? 0 : HEAD + first * rowHeight, Math.max(right - left, 1.5), at < 0 ? bottom : many * rowHeight); g.globalAlpha = 1;
    if (at >= 0) continue;
    const name = fault.on.length ? `${fault.name} ${fault.on.join(" ")}` : fault.name, wide = g.measureText(name).width;
    if (named && left >= free && left + wide < width) { g.fillText(name, left + 3, 11); free = left + wide + 10; }
  }
}
let PAINT = {}, byLane = [], rowHeight = 12;
for (let i = 0; i < N; i++) (byLane[O.lane[i]] ||= []).push(i);
function paint() { PAINT = {rule: colour("--rule"), soft: colour("--soft"), ink: colour("--ink"), ok: resolved("--ok"), failed: resolved("--fail"), unknown: resolved("--unknown"), fault: resolved("--fault"), s2: colour("--s2"), critical: colour("--critical")}; }
const HEAD = 18;
function drawTimeline() {
  const lanes = Math.max(D.lanes.length, 1); rowHeight = lanes <= 40 ? 14 : lanes <= 120 ? 9 : 5;
  const bottom = HEAD + lanes * rowHeight, [g, width, x] = prepare($("timeline"), bottom + 24);
  axis(g, width, x, bottom); shade(g, x, bottom, width, true);
  g.textAlign = "right"; g.fillStyle = PAINT.soft;
  if (rowHeight >= 9) D.lanes.forEach((name, lane) => g.fillText(name.length > 9 ? GROUPS.length ? name.slice(0, 4) + "… " + name.replace(" …", "").split(" ").pop() : name.slice(0, 8) + "…" : name, LEFT - 6, HEAD + lane * rowHeight + rowHeight - 3));
  const tints = [PAINT.ok, PAINT.failed, PAINT.unknown];
  for (const outcome of [0, 1, 2]) {
    g.fillStyle = tints[outcome];
    for (let i = 0; i < N; i++) {
      if (O.outcome[i] !== outcome || O.start[i] > view[1] || ended(i) < view[0]) continue;
      const left = Math.max(x(O.start[i]), LEFT), right = Math.min(x(ended(i)), width - RIGHT);
      g.fillRect(left, HEAD + O.lane[i] * rowHeight + 1, Math.max(right - left - .5, 1), rowHeight - 2);
    }
  }
  if (D.failing >= 0) { const i = D.failing; g.strokeStyle = PAINT.critical; g.lineWidth = 2.5; const left = x(O.start[i]); if (left >= LEFT && left <= width) g.strokeRect(left - 3, HEAD + O.lane[i] * rowHeight - 2, Math.max(x(ended(i)) - left, 2) + 6, rowHeight + 4); }
}
function buckets(width) {
  const many = Math.max(20, Math.min(160, Math.floor(width / 7))), size = (view[1] - view[0]) / many, made = Array.from({length: many}, () => ({counts: [0, 0, 0], took: []}));
  for (let i = 0; i < N; i++) {
    const at = O.took[i] < 0 ? O.start[i] : O.start[i] + O.took[i], place = Math.floor((at - view[0]) / size);
    if (place < 0 || place >= many) continue;
    made[place].counts[O.outcome[i]]++; if (O.took[i] >= 0 && O.outcome[i] === 0) made[place].took.push(O.took[i]);
  }
  return [made, size];
}
function line(g, points, tint) { g.strokeStyle = tint; g.lineWidth = 2; g.lineJoin = "round"; g.beginPath(); points.forEach(([px, py], at) => (at && py != null && points[at - 1][1] != null) ? g.lineTo(px, py) : py != null && g.moveTo(px, py)); g.stroke(); }
function drawThroughput() {
  const [g, width, x] = prepare($("throughput"), 220), bottom = 196, [made, size] = buckets(width);
  axis(g, width, x, bottom); shade(g, x, bottom, width, false);
  const rate = (n) => n / (size / 1e6), most = Math.max(1e-9, ...made.map((each) => rate(Math.max(...each.counts))));
  const power = 10 ** Math.floor(Math.log10(most)), top = [1, 2, 5, 10].map((s) => s * power).find((s) => s >= most * .999), y = (v) => bottom - v / top * (bottom - 14);
  g.textAlign = "right"; g.fillStyle = PAINT.soft; g.strokeStyle = PAINT.rule; g.lineWidth = 1;
  for (const part of [0, .5, 1]) { g.fillText(+(top * part).toPrecision(3) >= 1e4 ? top * part / 1e3 + " k" : +(top * part).toPrecision(3), LEFT - 6, y(top * part) + 4); g.beginPath(); g.moveTo(LEFT, y(top * part)); g.lineTo(width - RIGHT, y(top * part)); g.stroke(); }
  [PAINT.ok, PAINT.failed, PAINT.unknown].forEach((tint, outcome) => { if (D.counts[outcome]) line(g, made.map((each, at) => [x(view[0] + (at + .5) * size), y(rate(each.counts[outcome]))]), tint); });
}
function drawLatency() {
  const [g, width, x] = prepare($("latency"), 220), bottom = 196, [made, size] = buckets(width);
  axis(g, width, x, bottom); shade(g, x, bottom, width, false);
  let low = Infinity, high = 1; for (let i = 0; i < N; i++) if (O.took[i] >= 0) { low = Math.min(low, Math.max(O.took[i], 1)); high = Math.max(high, O.took[i]); }
  if (low === Infinity) return;
  const first = Math.floor(Math.log10(low)), last = Math.max(Math.ceil(Math.log10(high)), first + 1), y = (us) => bottom - (Math.log10(Math.max(us, 1)) - first) / (last - first) * (bottom - 14);
  g.textAlign = "right"; g.lineWidth = 1;
  for (let p = first; p <= last; p++) { g.fillStyle = PAINT.soft; g.strokeStyle = PAINT.rule; g.fillText(time(10 ** p), LEFT - 6, y(10 ** p) + 4); g.beginPath(); g.moveTo(LEFT, y(10 ** p)); g.lineTo(width - RIGHT, y(10 ** p)); g.stroke(); }
  const tints = [PAINT.ok, PAINT.failed, PAINT.unknown]; g.globalAlpha = N > 2e4 ? .25 : .5;
  for (let i = 0; i < N; i++) { if (O.took[i] < 0) continue; const px = x(O.start[i] + O.took[i]); if (px < LEFT || px > width - RIGHT) continue; g.fillStyle = tints[O.outcome[i]]; g.fillRect(px - 1, y(O.took[i]) - 1, 2, 2); }
  g.globalAlpha = 1;
  const at = (took, share) => took.length ? y(took[Math.min(took.length - 1, Math.ceil(share * took.length) - 1)]) : null;
  made.forEach((each) => each.took.sort((a, b) => a - b));
  line(g, made.map((each, n) => [x(view[0] + (n + .5) * size), at(each.took, .5)]), PAINT.s2);
  line(g, made.map((each, n) => [x(view[0] + (n + .5) * size), at(each.took, .99)]), PAINT.ink);
  g.textAlign = "right"; g.fillStyle = PAINT.s2; g.fillText("median", width - RIGHT - 44, 12); g.fillStyle = PAINT.ink; g.fillText("99 %", width - RIGHT - 4, 12);
}

// --- the order of events: what is around the failure, else what is in view; servers and messages where a trace has them

const STEP = 26, COLUMN = 190;
function chosen() {
  const all = Array.from({length: N}, (_, i) => i);
  if (D.failing >= 0) {
    const f = D.failing, same = all.filter((i) => O.key[i] === O.key[f] && O.start[i] <= ended(f));
    const before = same.filter((i) => ended(i) < O.start[f] && O.outcome[i] === 0).slice(-12);
    const around = same.filter((i) => ended(i) >= O.start[f] && i !== f && (O.outcome[i] !== 2 || O.start[i] >= (O.start[before[0]] || 0))).slice(-14);
    return [...new Set([...before, ...around, f])];
  }
  return all.filter((i) => O.start[i] <= view[1] && ended(i) >= view[0]).slice(0, 28);
}
function drawOperations() {
  const ops = chosen().sort((a, b) => O.start[a] - O.start[b]), lanes = [...new Set(ops.map((i) => O.lane[i]))].sort((a, b) => a - b);
  const moments = []; for (const i of ops) { moments.push([O.start[i], 0, i]); if (O.outcome[i] !== 2) moments.push([ended(i), 1, i]); }
  moments.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const from = {}, to = {}; moments.forEach(([, side, i], row) => { (side ? to : from)[i] = 44 + row * STEP; });
  const height = 44 + moments.length * STEP + 14, width = 70 + lanes.length * COLUMN, made = svg("svg", {viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "order of events"});
  moments.forEach(([at], row) => made.append(svg("text", {x: 4, y: 48 + row * STEP, class: "tick"}, at >= 1e6 ? (at / 1e6).toFixed(4) + " s" : time(at))));
  lanes.forEach((lane, place) => { const x = 90 + place * COLUMN; made.append(svg("line", {x1: x, x2: x, y1: 26, y2: height - 6, class: "lifeline"}), svg("text", {x: x - 6, y: 16, class: "head"}, `process ${D.lanes[lane]}`)); });
  for (const i of ops) {
    const x = 90 + lanes.indexOf(O.lane[i]) * COLUMN, y2 = to[i] ?? height - 8;
    made.append(svg("rect", {x: x - 6, y: from[i], width: 12, height: Math.max(y2 - from[i], 6), rx: 4, class: `op o${O.outcome[i]}${i === D.failing ? " failing" : ""}`}));
    const text = words(i), shown = text.length > 24 ? text.slice(0, 23) + "…" : text, label = svg("text", {x: x + 12, y: from[i] + 14, class: i === D.failing ? "bold" : ""}, shown);
    label.append(svg("title", {}, `${text} (${NAMES[O.outcome[i]]}, line ${O.line[i]})`)); made.append(label);
  }
  $("spacetime").replaceChildren(made);
  if (D.failing >= 0) $("spacetime").scrollLeft = 90 + lanes.indexOf(O.lane[D.failing]) * COLUMN - $("spacetime").clientWidth / 2;
  $("around-about").textContent = D.failing >= 0 ? "Around the operation that no order explains (framed); those of unknown outcome reach to the end. Rows are events, not seconds." : "The first operations of the stretch below; rows are events, not seconds.";
}
function drawMessages() {
  const shown = D.messages.filter((m) => m[2] <= view[1] && (m[3] ?? m[2]) >= view[0]).slice(0, 250), names = [...new Set(D.messages.flatMap((m) => [m[0], m[1]]))].sort();
  const points = [...new Set(shown.flatMap((m) => m[3] == null ? [m[2]] : [m[2], m[3]]))].sort((a, b) => a - b), row = new Map(points.map((at, n) => [at, 40 + n * 14]));
  const height = 60 + points.length * 14, width = Math.max(names.length * 170 + 60, 300), x = (name) => 110 + names.indexOf(name) * 170, made = svg("svg", {viewBox: `0 0 ${width} ${height}`, width, height});
  for (const name of names) made.append(svg("text", {x: x(name), y: 16, "text-anchor": "middle", class: "head"}, name), svg("line", {x1: x(name), x2: x(name), y1: 24, y2: height, class: "lifeline"}));
  points.forEach((at, n) => n % 2 || made.append(svg("text", {x: 2, y: row.get(at) + 4, class: "tick"}, time(at))));
  for (const [a, b, sent, received, what] of shown) {
    const x1 = x(a), y1 = row.get(sent), lost = received == null, x2 = lost ? (x1 + x(b)) / 2 : x(b), y2 = lost ? y1 + 10 : row.get(received);
    const arrow = svg("line", {x1, y1, x2, y2, class: lost ? "message lost" : "message"}); arrow.append(svg("title", {}, `${what}: ${a} to ${b}${lost ? ", lost" : ""}`)); made.append(arrow);
    made.append(svg("circle", {cx: x2, cy: y2, r: 3, class: lost ? "gap" : "s2"}));
  }
  $("spacetime").replaceChildren(made);
  $("around-about").textContent = `Messages between servers in the stretch below, ${shown.length} of them; dashed ones were lost. Rows are events, not seconds.`;
}

// --- looking around

let frame = 0;
function draw() { cancelAnimationFrame(frame); frame = requestAnimationFrame(() => { paint(); drawTimeline(); drawThroughput(); drawLatency(); D.messages.length ? drawMessages() : drawOperations(); $("view").textContent = `${time(Math.round(view[0]))} to ${time(Math.round(view[1]))}`; }); }
function look(from, to) { const span = Math.min(Math.max(to - from, 20), SPAN), left = Math.min(Math.max(from, 0), SPAN - span); view = [left, left + span]; draw(); }
const moves = {all: () => look(0, SPAN), in: () => look(view[0] + (view[1] - view[0]) / 4, view[1] - (view[1] - view[0]) / 4), out: () => look(view[0] - (view[1] - view[0]) / 2, view[1] + (view[1] - view[0]) / 2),
  left: () => look(view[0] - (view[1] - view[0]) / 2, view[1] - (view[1] - view[0]) / 2), right: () => look(view[0] + (view[1] - view[0]) / 2, view[1] + (view[1] - view[0]) / 2),
  failure: () => { const i = D.failing, room = Math.max(O.took[i], 1e3) * 8; look(O.start[i] - room, ended(i) + room); }};
document.querySelectorAll("button[data-do]").forEach((each) => each.addEventListener("click", () => moves[each.dataset.do]()));
$("to-failure").hidden = D.failing < 0;
let grabbed = null;
const canvas = $("timeline"), at = (event) => view[0] + (event.offsetX - LEFT) / (canvas.clientWidth - LEFT - RIGHT) * (view[1] - view[0]);
canvas.addEventListener("pointerdown", (event) => { grabbed = event.offsetX; });
canvas.addEventListener("pointerup", (event) => { const from = grabbed; grabbed = null; if (from != null && Math.abs(event.offsetX - from) > 8) { const other = view[0] + (from - LEFT) / (canvas.clientWidth - LEFT - RIGHT) * (view[1] - view[0]); look(Math.min(at(event), other), Math.max(at(event), other)); } });
canvas.addEventListener("pointerleave", () => { grabbed = null; $("tip").hidden = true; });
canvas.addEventListener("pointermove", (event) => {
  const ops = byLane[Math.floor((event.offsetY - HEAD) / rowHeight)] || [], moment = at(event), slack = 3 * (view[1] - view[0]) / canvas.clientWidth;
  let low = 0, high = ops.length; while (low < high) { const middle = (low + high) >> 1; O.start[ops[middle]] <= moment + slack ? low = middle + 1 : high = middle; }
  const i = ops[low - 1], tip = $("tip"), hit = i != null && ended(i) + slack >= moment;
  tip.hidden = !hit;
  if (hit) { tip.textContent = `${words(i)}: ${NAMES[O.outcome[i]]}, ${time(O.start[i])}${O.took[i] < 0 ? ", no answer" : " for " + time(O.took[i])} (line ${O.line[i]})`; tip.style.left = Math.min(event.pageX + 12, window.innerWidth - 350 > 0 ? window.innerWidth - 350 : 8) + "px"; tip.style.top = event.pageY + 16 + "px"; }
});
window.addEventListener("resize", draw); matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw); draw();
