// @ts-check
// virtual-core asks for the mode of its build, which a browser does not have.  It must be imported first.

/** @type {Record<string, unknown>} */ (/** @type {unknown} */ (globalThis)).process ??= { env: { NODE_ENV: "production" } };

export {};
