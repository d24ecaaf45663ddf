import createClient, { type Middleware } from "openapi-fetch";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];

/** What the server says when it does not do what was asked. */
export class Problem extends Error {
  readonly status: number;
  readonly errors: Schemas["FieldErrorOut"][];

  constructor(status: number, detail: string, errors: Schemas["FieldErrorOut"][] = []) {
    super(detail);
    this.status = status;
    this.errors = errors;
  }
}

let word = "";

/** The word against forgery, told by the server to this page alone, and said with every act. */
export function keepWord(said: string | null): void {
  word = said ?? "";
}

const says: Middleware = {
  onRequest({ request }) {
    if (request.method !== "GET") request.headers.set("X-Forestay-Word", word);
    return request;
  },
};

export const api = createClient<paths>({ baseUrl: "/" });
api.use(says);

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** A text, or the problem that it is; the client gives no data for an answer without a body, which is an empty text. */
export function toldText(asked: Promise<Answer<string>>): Promise<string> {
  return told(asked.then((answer) => (answer.response.ok && answer.data === undefined ? { ...answer, data: "" } : answer)));
}

/** The answer, or the problem that it is. */
export async function told<T>(asked: Promise<Answer<T>>): Promise<T> {
  let answer: Answer<T>;
  try {
    answer = await asked;
  } catch {
    throw new Problem(0, "The server does not answer. It is asked again.");
  }
  const { data, error, response } = answer;
  if (response.ok && data !== undefined) return data;
  if (typeof error === "object" && error !== null && "detail" in error) {
    const known = error as Schemas["ProblemOut"];
    throw new Problem(response.status, known.detail, known.errors ?? []);
  }
  throw new Problem(response.status, response.statusText || `Error ${response.status}`);
}
