import type { Schemas } from "./client";

export type InboxGroup = Schemas["InboxGroupOut"];

/** An error is one group, whoever owns its failures; what was recorded before there were fingerprints is told apart by owner too. */
export const groupId = (group: InboxGroup): string =>
  [group.group, group.fingerprint, group.cause, group.fingerprint ? "" : group.owner, group.waits_for].join("|");
