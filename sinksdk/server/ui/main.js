// Asks the server again and again, and shows the answers. Reads only.

import { connector } from "./connector.js";
import { h, render } from "./dom.js";
import { clock, duration } from "./format.js";
import { overview } from "./overview.js";

const PAUSE = 2000; // milliseconds between two questions, at least
const LONGEST_PAUSE = 30_000;
const RELUCTANCE = 10; // times as long as the answer took: slow stores are asked less often
const RETRY_PAUSE = 5000; // after a question without an answer: who waits for an outage to end looks at the page
const PATIENCE = 5000; // milliseconds without an answer until the reader is told

const [header, problem, main] = ["header", "problem", "main"].map((id) => document.getElementById(id));

let route = routeOf(location.hash);
let answer = null; // { data, at }: the last one, and when it came
let trouble = null; // { text, since }: why there is no newer one
let asking = null; // { since, controller }: the question that is under way
let timer = 0;
let server = null; // what it says of itself

function routeOf(hash) {
  const [, encoded] = hash.match(/^#\/connectors\/(.+)$/) ?? [];
  if (encoded === undefined) return { name: null, path: "../progress" };
  const name = decoded(encoded);
  return { name, path: `../progress/${encodeURIComponent(name)}` };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // written by hand
  }
}

async function ask() {
  clearTimeout(timer);
  asking?.controller.abort();
  const question = { since: Date.now(), controller: new AbortController() };
  asking = question;
  let pause = RETRY_PAUSE;
  try {
    server ??= await get("../", question.controller.signal);
    const data = await get(route.path, question.controller.signal);
    if (asking !== question) return;
    answer = { data, at: Date.now() };
    trouble = null;
    pause = Math.min(Math.max(PAUSE, RELUCTANCE * (answer.at - question.since)), LONGEST_PAUSE);
  } catch (error) {
    if (asking !== question) return; // another view was wanted meanwhile
    trouble = { text: error.message, since: trouble?.since ?? answer?.at ?? question.since };
  }
  asking = null;
  timer = setTimeout(ask, pause);
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
  const meanings = {
    401: "The server wants credentials. Load this page again to be asked for them.",
    404: `There is no connector '${route.name}', or no longer.`,
    503: `The store does not answer: ${message}`,
  };
  throw new Error(meanings[response.status] ?? `The server answered ${response.status}: ${message}`);
}

/** What is wrong now, if anything, also while the server takes its time. */
function currentTrouble() {
  if (trouble) return trouble;
  if (!asking || Date.now() - asking.since < PATIENCE) return null;
  return { text: "The server takes long to answer.", since: answer?.at ?? asking.since };
}

function draw() {
  const wrong = currentTrouble();
  document.title = [wrong && "✕", route.name, "sinksdk"].filter(Boolean).join(" · ");
  document.body.classList.toggle("stale", Boolean(wrong && answer));
  render(header, head(wrong));
  render(problem, wrong && h("p", {}, h("strong", {}, wrong.text), " ", oldness(wrong)));
  render(
    main,
    answer ? h("div", { key: route.name ?? "" }, view()) : !wrong && h("p", { class: "empty" }, "Loading…"),
  );
}

function head(wrong) {
  const state = wrong ? "not up to date" : answer ? "live" : "…";
  return [
    h("a", { href: "#/", class: "brand" }, "sinksdk"),
    server &&
      h("span", { class: "muted", title: `store ${server.kafka_cluster_id}` }, `version ${server.version}`),
    h("span", { class: wrong ? "pulse wrong" : "pulse" }, state),
  ];
}

function oldness(wrong) {
  if (!answer) return `Since ${duration(secondsSince(wrong.since))}.`;
  return `Shown is what was known at ${clock(answer.at / 1000)}, ${duration(secondsSince(answer.at))} ago.`;
}

function view() {
  const { data, at } = answer;
  // What is known gets older: relative times go on. The plot ends where the last answer ends.
  const now = data.now + secondsSince(at);
  return route.name === null ? overview(data, now, draw) : connector(data, now, main.clientWidth, draw);
}

function secondsSince(milliseconds) {
  return (Date.now() - milliseconds) / 1000;
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
