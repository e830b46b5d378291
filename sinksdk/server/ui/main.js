// Polls the server and shows the responses. Sends GET requests only.

import { connector } from "./connector.js";
import { h, render } from "./dom.js";
import { clock, duration } from "./format.js";
import { overview } from "./overview.js";

const PAUSE = 2000; // minimum milliseconds between two requests
const LONGEST_PAUSE = 30_000;
const PAUSE_FACTOR = 10; // times the duration of the last request, so that slow stores get fewer requests
const RETRY_PAUSE = 5000; // milliseconds after a failed request
const PATIENCE = 5000; // milliseconds without a response until the page says so

const [header, alert, main] = ["header", "problem", "main"].map((id) => document.getElementById(id));

let route = routeOf(location.hash);
let response = null; // { data, at }: the last response, and its time
let problem = null; // { text, since }: why there is no newer response
let request = null; // { since, controller }: the running request
let timer = 0;
let server = null; // the response of GET /

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
    return text; // a malformed address
  }
}

async function poll() {
  clearTimeout(timer);
  request?.controller.abort();
  const mine = { since: Date.now(), controller: new AbortController() };
  request = mine;
  let pause = RETRY_PAUSE;
  try {
    server ??= await get("../", mine.controller.signal);
    const data = await get(route.path, mine.controller.signal);
    if (request !== mine) return;
    response = { data, at: Date.now() };
    problem = null;
    pause = Math.min(Math.max(PAUSE, PAUSE_FACTOR * (response.at - mine.since)), LONGEST_PAUSE);
  } catch (error) {
    if (request !== mine) return; // the user opened another view
    problem = { text: error.message, since: problem?.since ?? response?.at ?? mine.since };
  }
  request = null;
  timer = setTimeout(poll, pause);
  draw();
}

async function get(path, signal) {
  let found;
  try {
    found = await fetch(path, { signal, headers: { Accept: "application/json" } });
  } catch {
    throw new Error("The server is unreachable.");
  }
  if (found.ok) return found.json();
  const { message } = await found.json().catch(() => ({ message: found.statusText }));
  const meanings = {
    401: "Authentication required. Reload this page to enter credentials.",
    404: `Connector '${route.name}' does not exist.`,
    503: `The store does not respond: ${message}`,
  };
  throw new Error(meanings[found.status] ?? `The server responded with ${found.status}: ${message}`);
}

/** The current problem, if any, also while a request takes long. */
function currentProblem() {
  if (problem) return problem;
  if (!request || Date.now() - request.since < PATIENCE) return null;
  return { text: "The server is not responding.", since: response?.at ?? request.since };
}

function draw() {
  const wrong = currentProblem();
  document.title = [wrong && "✕", route.name, "sinksdk"].filter(Boolean).join(" · ");
  document.body.classList.toggle("stale", Boolean(wrong && response));
  render(header, head(wrong));
  render(alert, wrong && h("p", {}, h("strong", {}, wrong.text), " ", age(wrong)));
  render(
    main,
    response ? h("div", { key: route.name ?? "" }, view()) : !wrong && h("p", { class: "empty" }, "Loading…"),
  );
}

function head(wrong) {
  const state = wrong ? "not up to date" : response ? "live" : "…";
  return [
    h("a", { href: "#/", class: "brand" }, "sinksdk"),
    server &&
      h("span", { class: "muted", title: `store ${server.kafka_cluster_id}` }, `version ${server.version}`),
    h("span", { class: wrong ? "pulse wrong" : "pulse" }, state),
  ];
}

function age(wrong) {
  if (!response) return `For ${duration(secondsSince(wrong.since))}.`;
  return `The data is from ${clock(response.at / 1000)}, ${duration(secondsSince(response.at))} ago.`;
}

function view() {
  const { data, at } = response;
  // Relative times continue to grow after a failed request; the plot ends with the last response.
  const now = data.now + secondsSince(at);
  return route.name === null ? overview(data, now, draw) : connector(data, now, main.clientWidth, draw);
}

function secondsSince(milliseconds) {
  return (Date.now() - milliseconds) / 1000;
}

addEventListener("hashchange", () => {
  route = routeOf(location.hash);
  response = problem = null;
  scrollTo(0, 0);
  draw();
  poll();
});
addEventListener("resize", draw);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else poll();
});
setInterval(() => document.hidden || draw(), 1000);
draw();
poll();
