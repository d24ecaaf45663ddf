/** The word of this answer: styles that libraries write into the page bear it, and only those are let in. */
export const nonce: string = document.querySelector<HTMLMetaElement>('meta[name="forestay-nonce"]')?.content ?? "";

// Libraries that ask the bundler for the word find it here.
(globalThis as { __webpack_nonce__?: string }).__webpack_nonce__ = nonce;
