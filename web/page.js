// The page: what the service says, each second, in the order in which one asks.

import * as charts from "./charts.js";
import { Connection } from "./connection.js";
import * as disorder from "./disorder.js";
import { showLanes } from "./lanes.js";
import { make, say, showCounts, showEvents, showWindows } from "./tables.js";
import { span, time, window as bounds } from "./words.js";

/** What is older than this is said to be, in ms: three times as long as there is nothing new as a rule. */
const OLD = 3_500;
/** How long a restart is told of, in ms. */
const RESTART_SHOWN = 60_000;
/** What is read out changes no more often, in ms. */
const SPOKEN_EVERY = 10_000;

const id = (name) => document.getElementById(name);
let state = null;
let restarted = 0;
let spoken = { text: "", at: -SPOKEN_EVERY };

function onPart(name, content) {
  if (name === "state") onState(content);
  if (name === "events") showEvents(content, state?.now ?? Date.now());
  if (name === "points") charts.takePoints(content);
  if (name === "point") charts.showPoint(content);
  if (name === "disorder") disorder.showDisorder(content);
}

function onState(content) {
  const before = state?.process;
  if (before && before.id !== content.process.id) {
    // A newer service may say things that this version of the page does not know.
    if (before.page !== content.process.page) return location.reload();
    restarted = performance.now();
    disorder.showDisorder({ topics: [] });
  }
  state = content;
  showWhy(content);
  showLanes(content);
  showWindows(content);
  showCounts(content);
  showConnection();
}

function showWhy({ explanation, watermark, watermark_lag_ms, now }) {
  const why = explanation ?? {};
  say(id("why-title"), why.state === "fired" || why.state === "closed" ? "The next window" : "Why the next window has not fired");
  say(id("sentence"), why.sentence || "Nothing can be said yet.");
  const holder = why.holder ? `${why.holder.topic}/${why.holder.partition}` : "nobody";
  const more = why.holders > 1 ? ` and ${why.holders - 1} more` : "";
  const ahead = watermark_lag_ms < 0 ? " ahead" : " behind";
  showFacts([
    ["Held by", holder + more],
    ["Cause", why.cause ? why.cause.replaceAll("_", " ") : "none"],
    ["Watermark", watermark === null ? "none yet" : `${time(watermark, now, true)}, ${span(Math.abs(watermark_lag_ms))}${ahead}`],
    ["Next window", why.window ? bounds(why.window.start, why.window.end, now) : "none"],
    ["Fires at the earliest", why.earliest === null || why.earliest === undefined ? "cannot be said" : why.earliest > now ? `in ${span(why.earliest - now)}` : "any moment"],
  ]);
  speak(`Held by ${holder}${more}, cause: ${why.cause ? why.cause.replaceAll("_", " ") : "none"}`);
}

function showFacts(facts) {
  const list = id("facts");
  facts.forEach(([name, text], x) => {
    const held = list.children[x] ?? list.appendChild(make("div"));
    if (held.children.length === 0) held.append(make("dt", "", name), make("dd"));
    say(held.children[1], text);
  });
}

/** What a screen reader reads out: who holds and why, when that changes, and not each second. */
function speak(text) {
  const now = performance.now();
  if (text === spoken.text || now - spoken.at < SPOKEN_EVERY) return;
  spoken = { text, at: now };
  say(id("spoken"), text);
}

function showConnection() {
  const [pill, alarm, notice, main] = [id("connection"), id("alarm"), id("notice"), id("main")];
  const age = connection.age;
  const lost = !connection.paused && connection.missing > OLD;
  const loop = state?.age_ms ?? 0;
  say(pill, connection.paused ? "❚❚ paused" : lost ? "✕ disconnected" : state && age <= OLD ? "● live" : "connecting");
  pill.dataset.state = connection.paused ? "paused" : lost ? "lost" : state && age <= OLD ? "live" : "";
  let [said, since] = ["", ""];
  if (lost) {
    said = `Disconnected. ${connection.refused || "Trying to connect again."}`;
    since = state ? `What is shown is ${span(age)} old.` : "Nothing has come yet.";
  } else if (loop > 2 * OLD) {
    said = "The loop of the service does not report.";
    since = `What is shown is ${span(loop)} old.`;
  }
  // The text is an alert; the seconds beside it are not, or each of them would be read out.
  alarm.hidden = said === "";
  say(id("alarm-said"), said);
  say(id("alarm-age"), since);
  main.classList.toggle("old", lost);
  const shown = restarted > 0 && performance.now() - restarted < RESTART_SHOWN;
  notice.hidden = !shown;
  say(notice, shown ? `The service has restarted, at ${time(state.process.started, state.now)}. What is shown begins anew.` : "");
  const phase = id("phase");
  phase.hidden = !state || state.phase === "running";
  say(phase, state?.phase ?? "");
  document.title = lost ? "✕ disconnected - tidegate" : state?.explanation?.holder ? `${state.explanation.holder.topic}/${state.explanation.holder.partition} holds - tidegate` : "tidegate";
}

id("pause").addEventListener("click", () => {
  connection.paused = !connection.paused;
  id("pause").setAttribute("aria-pressed", String(connection.paused));
  showConnection();
});
disorder.listen();
charts.listen();
const connection = new Connection("api/v1/live", onPart);
setInterval(showConnection, 500);
