// @ts-check
// Shown by a server with many users: who is signed in, a button to sign out, and the way to the form when the session
// is over.

import { el } from "./dom.js";

const LOOK_MS = 30_000;

async function look() {
  let answer;
  try {
    answer = await fetch("/api/session", { cache: "no-store" });
  } catch {
    return null; // no connection: the view says so
  }
  if (answer.status === 401) location.assign("/sign-in");
  return answer.ok ? answer.json() : null;
}

async function signOut() {
  await fetch("/sign-out", { method: "POST" });
  location.assign("/sign-in");
}

/** @param {{ user: string, signsOut: boolean }} session */
function show(session) {
  const parts = [el("span", { class: "quiet" }, session.user)];
  if (session.signsOut) {
    parts.push(el("button", { type: "button", onclick: signOut }, "Sign out"));
  }
  document.querySelector("header")?.append(...parts);
}

const session = await look();
if (session) show(session);
setInterval(look, LOOK_MS);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) look();
});
