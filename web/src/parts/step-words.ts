import type { Texts } from "../texts/en";
import { visible } from "./plain";
import { exact, unitOf, type Unit } from "./units";

/** A step of a playbook as it is written down: its action, and the fields of that action. */
export type Step = Record<string, unknown>;

export const FIELD = /\{([\w.]+)\}/g;
const TEXTS = new Set(["text", "reason", "domain", "protocol", "place", "retry_policy"]);

const record = (value: unknown): Step => (typeof value === "object" && value !== null ? (value as Step) : {});
export const valueAt = (step: Step, path: string): unknown => path.split(".").reduce<unknown>((value, name) => record(value)[name], step);

export function withValue(step: Step, [name = "", ...rest]: string[], value: unknown): Step {
  return { ...step, [name]: rest.length === 0 ? value : withValue(record(step[name]), rest, value) };
}

/** What a field is measured in: a bound or an amount, in what its need is. */
export function unitAt(path: string): Unit {
  const [name = "", need = "", part = ""] = path.split(".");
  if (name === "needs") return part === "factor" ? "number" : unitOf(need);
  return TEXTS.has(name) ? "text" : unitOf(name);
}

function worklet(value: unknown): string {
  return (typeof value === "string" ? value : String(record(value).flow ?? "")).slice(0, 12);
}

/** A name in a sentence: braces are for fields. */
const plainName = (value: unknown) => (value === undefined ? "" : String(value).replaceAll(/[{}]/g, ""));

/** The sentence for a step, with a name in braces for each of its fields; null: there are no words for it. */
export function template(texts: Texts, step: Step): string | null {
  const words = texts.steps;
  const action = String(step.action);
  const target = words.targets[String(step.target ?? "subject")] ?? plainName(step.target);
  const field = (path: string) => (valueAt(step, path) === undefined ? "" : `{${path}}`);
  const steer = words.steer[action];
  if (steer !== undefined) return steer(target);
  switch (action) {
    case "resubmit": {
      if (step.how === "other-domain") return words.elsewhere(field("domain"), field("wait"));
      const changes = Object.entries(record(step.needs)).map(([need, change]) => {
        const of = words.amounts[need] ?? plainName(need);
        return record(change).to === undefined
          ? words.times(of, `{needs.${need}.factor}`, field(`needs.${need}.at_most`))
          : words.to(of, `{needs.${need}.to}`);
      });
      return words.again(changes.join(words.and), field("wait"));
    }
    case "retry":
      return words.retry(field("retry_policy"));
    case "avoid-host":
      return words.avoid(String(step.scope ?? "host"), field("seconds"));
    case "restage": {
      const how = String(step.how ?? "same");
      const changed = ["protocol", "buffer", "timeout"].filter((one) => field(one)).map((one) => words.transfer(words.fields[one] ?? one, field(one)));
      return (words.restage[how] ?? (() => null))(how === "other-target" ? field("place") : changed.join(words.and));
    }
    case "remake":
      return words.remake;
    case "free-space":
      return words.free("{size}");
    case "reserve-space":
      return words.reserve("{size}", field("seconds"));
    case "repoll":
      return words.repoll;
    case "reregister":
      return words.reregister;
    case "rollback":
      return words.rollback;
    case "notify":
      return words.notify(Array.isArray(step.to) ? step.to.map(plainName).join(", ") : "", "{text}");
    case "hold":
      return words.hold(target, field("reason"));
    case "compensate":
      return words.compensate((Array.isArray(step.worklets) ? step.worklets : []).map((one) => plainName(worklet(one))).join(", "));
    case "select":
      return words.select(plainName(worklet(step.worklet)));
    default:
      return null;
  }
}

export function ending(texts: Texts, step: Step): string {
  return step.when_refused === "go-on" ? texts.steps.goOn : step.when_refused === "stop" ? texts.steps.stop : "";
}

/** A step in words: Run again with 2 × memory, at most 64 GiB. */
export function stepWords(texts: Texts, step: Step): string {
  const sentence = template(texts, step);
  if (sentence === null) return visible(JSON.stringify(step));
  return visible(sentence.replaceAll(FIELD, (_, path: string) => exact(unitAt(path), valueAt(step, path))) + ending(texts, step));
}

interface Conclusion {
  playbook?: string;
  steps?: Step[];
}

/** What a rule does: the name of a stored playbook, or its own steps. */
export function conclusionWords(texts: Texts, conclusion: Conclusion | undefined): string {
  if (conclusion?.playbook) return visible(conclusion.playbook);
  return (conclusion?.steps ?? []).map((one) => stepWords(texts, one)).join(texts.steps.then);
}
