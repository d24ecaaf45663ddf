import type { Schemas } from "../../api/client";

export type InboxGroup = Schemas["InboxGroupOut"];

export const groupId = (group: InboxGroup): string => [group.group, group.cause, group.owner, group.waits_for].join("|");
