// Asks the server again and again, and shows the answers. Reads only.

import { connector } from "./connector.js";
import { h, render } from "./dom.js";
import { clock, duration } from "./format.js";
import { overview } from "./overview.js";

const PAUSE = 2000; // milliseconds between two questions, at least
const LONGEST_PAUSE = 30_000;
const RELUCTANCE = 10; // a pause is so many times as long as the answer took: slow stores are asked less often
const PATIENCE = 5000; // milliseconds without an answer until the reader is told

const [header, problem, main] = ["header", "problem", "main"].map((id) => document.getElementById(id));

let route = routeOf(location.hash);
let answer = null; // { data, at }: the last one, and when it came
let trouble = null; // { text, since }: why there is no newer one
let asking = null; // { since, controller }: the question that is under way
let timer = 0;
let server = null; // what it says of itself

function routeOf(hash) {
  const match = hash.match(/^#\/connectors\/(.+)$/);
  return match ? { name: decodeURIComponent(match[1]), path: `../progress/${match[1]}` } : { name: null, path: "../progress" };
}

async function ask() {
  clearTimeout(timer);
  asking?.controller.abort();
  const question = { since: Date.now(), controller: new AbortController() };
  asking = question;
  try {
    server ??= await get("../", question.controller.signal);
    const data = await get(route.path, question.controller.signal);
    if (asking !== question) return;
    answer = { data, at: Date.now() };
    trouble = null;
  } catch (error) {
    if (asking !== question) return; // another view was wanted meanwhile
    trouble = { text: error.message, since: trouble?.since ?? answer?.at ?? question.since };
  }
  asking = null;
  const took = Date.now() - question.since;
  timer = setTimeout(ask, Math.min(Math.max(PAUSE, RELUCTANCE * took), LONGEST_PAUSE));
  draw();
}

async function get(path, signal) {
  let response;
  try {
    response = await fetch(path, { signal, headers: { Accept: "application/json" } });
  } catch {
    throw new Error("The server cannot be reached.");
  }
  if (response.ok) return response.json();
  const { message } = await response.json().catch(() => ({ message: response.statusText }));
  if (response.status === 503) throw new Error(`The store does not answer: ${message}`);
  if (response.status === 401) throw new Error("The server wants credentials. Load this page again to be asked for them.");
  if (response.status === 404) throw new Error(`There is no connector '${route.name}', or no longer.`);
  throw new Error(`The server answered ${response.status}: ${message}`);
}

/** What is wrong now, if anything, also while the server takes its time. */
function currentTrouble() {
  if (trouble) return trouble;
  if (asking && Date.now() - asking.since > PATIENCE) return { text: "The server takes long to answer.", since: answer?.at ?? asking.since };
  return null;
}

function draw() {
  const wrong = currentTrouble();
  const seconds = (milliseconds) => (Date.now() - milliseconds) / 1000;
  document.title = [wrong && "✕", route.name, "sinksdk"].filter(Boolean).join(" · ");
  document.body.classList.toggle("stale", Boolean(wrong && answer));
  render(
    header,
    h("a", { href: "#/", class: "brand" }, "sinksdk"),
    server && h("span", { class: "muted store", title: `store ${server.kafka_cluster_id}` }, `version ${server.version}`),
    h("span", { class: wrong ? "pulse wrong" : "pulse" }, wrong ? "not up to date" : answer ? "live" : "…"),
  );
  render(
    problem,
    wrong && h("p", {}, h("strong", {}, wrong.text), answer ? ` Shown is what was known at ${clock(answer.at / 1000)}, ${duration(seconds(answer.at))} ago.` : ` Since ${duration(seconds(wrong.since))}.`),
  );
  if (!answer) {
    render(main, !wrong && h("p", { class: "empty" }, "Loading…"));
    return;
  }
  const { data } = answer;
  const now = data.now + seconds(answer.at);
  // What is known gets older; what was committed since is not known, so the plot ends where it was seen last.
  render(main, h("div", { key: route.name ?? "" }, route.name === null ? overview(data, now, draw) : connector(data, now, main.clientWidth, draw)));
}

addEventListener("hashchange", () => {
  route = routeOf(location.hash);
  answer = trouble = null;
  scrollTo(0, 0);
  draw();
  ask();
});
addEventListener("resize", draw);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else ask();
});
setInterval(() => document.hidden || draw(), 1000);
draw();
ask();
