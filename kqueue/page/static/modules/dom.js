// @ts-check
// Builds elements.  Text from the cluster becomes text nodes only, so a name can never be markup.

/**
 * Return a new element.
 * @param {string} tag
 * @param {Record<string, unknown>} [attributes] `class`, ARIA and other attributes; `on...` are listeners; null and false are left out
 * @param {...(Node | string | number | null | undefined)} children
 * @returns {HTMLElement}
 */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on") && typeof value === "function") {
      made.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    } else if (value !== null && value !== undefined && value !== false) {
      made.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const child of children) {
    if (child !== null && child !== undefined) made.append(child instanceof Node ? child : shown(child));
  }
  return made;
}

/**
 * Make these elements the children of another one; a child that stays is not moved, so it keeps the focus.
 * @param {HTMLElement} parent
 * @param {HTMLElement[]} wanted
 */
export function replaced(parent, wanted) {
  const kept = new Set(wanted);
  for (const child of [...parent.children]) if (!kept.has(/** @type {HTMLElement} */ (child))) child.remove();
  wanted.forEach((child, place) => {
    if (parent.children[place] !== child) parent.insertBefore(child, parent.children[place] ?? null);
  });
}

/**
 * Return the value of a colour of the style, such as `held`.
 * @param {string} name
 */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/**
 * Return the address of a workload's page.
 * @param {string} namespace
 * @param {string} name
 */
export function workloadLink(namespace, name) {
  return `#/workload/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
}

/**
 * Return an SVG element.
 * @param {string} tag
 * @param {Record<string, string | number>} attributes
 * @param {...(Element | string)} children texts become text nodes
 */
export function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children.map((child) => (typeof child === "string" ? shown(child) : child)));
  return made;
}

/**
 * Return the text in which a search looks for all its words.
 * @param {string} search
 * @returns {(text: string) => boolean}
 */
export function matcher(search) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return (text) => {
    const lower = words.length ? text.toLowerCase() : "";
    return words.every((word) => lower.includes(word));
  };
}

/**
 * Return a text in which control and direction characters are visible as code points.
 * @param {unknown} text
 */
export function shown(text) {
  return String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g, (letter) =>
    `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/**
 * Return how long ago a time was, in the largest unit: "3 min".
 * @param {string} time RFC 3339; empty: unknown
 * @param {number} now milliseconds
 */
export function age(time, now) {
  const seconds = Math.max(0, Math.floor((now - Date.parse(time)) / 1000));
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

/**
 * Return a notice with a message of several lines.
 * @param {string} message
 */
export function notice(message) {
  return el("p", { class: "notice", role: "alert" }, message);
}
