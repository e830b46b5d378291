// Updates the page to a description, changing only what differs: focus, selection, opened details and scroll
// positions survive. Texts become text nodes, never markup.

const SVG = "http://www.w3.org/2000/svg";

const described = new WeakMap(); // node → its description

/** A description of an element. `key` identifies it among its siblings, `on…` are listeners. */
export function h(tag, properties, ...children) {
  return { tag, properties: properties ?? {}, children: flat(children) };
}

/** As h, for SVG. */
export function svg(tag, properties, ...children) {
  return { ...h(tag, properties, ...children), namespace: SVG };
}

/** Updates an element's children to the descriptions. */
export function render(parent, ...descriptions) {
  const keyed = new Map();
  for (const node of parent.childNodes) {
    const key = keyOf(described.get(node));
    if (key !== undefined) keyed.set(key, node);
  }
  let next = parent.firstChild;
  for (const description of flat(descriptions)) {
    const key = keyOf(description);
    const known = key === undefined ? next : keyed.get(key);
    const node = fits(known, description) ? known : create(description);
    update(node, description);
    if (node === next) next = node.nextSibling;
    else place(parent, node, next);
  }
  while (next) {
    const gone = next;
    next = gone.nextSibling;
    gone.remove();
  }
}

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

function keyOf(description) {
  return description?.properties?.key;
}

function fits(node, description) {
  if (!node) return false;
  if (description.tag === undefined) return node.nodeType === Node.TEXT_NODE;
  const before = described.get(node);
  return before?.tag === description.tag && keyOf(before) === keyOf(description);
}

function create(description) {
  if (description.tag === undefined) return document.createTextNode("");
  return description.namespace
    ? document.createElementNS(description.namespace, description.tag)
    : document.createElement(description.tag);
}

function update(node, description) {
  if (description.tag === undefined) {
    const text = String(description);
    if (node.data !== text) node.data = text;
    return;
  }
  const before = described.get(node)?.properties ?? {};
  described.set(node, description);
  for (const name of new Set([...Object.keys(before), ...Object.keys(description.properties)])) {
    const value = description.properties[name];
    if (name === "key" || before[name] === value) continue;
    if (name.startsWith("on")) node[name] = value ?? null;
    else if (value === undefined || value === null || value === false) node.removeAttribute(name);
    else node.setAttribute(name, value === true ? "" : value);
  }
  render(node, description.children);
}

function place(parent, node, next) {
  // moveBefore keeps the focus of the moved node; browsers without it lose only the focus.
  if (node.isConnected && parent.moveBefore) parent.moveBefore(node, next);
  else parent.insertBefore(node, next);
}
