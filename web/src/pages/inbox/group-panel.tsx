import { Anchor, Divider, List, Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { api, told } from "../../api/client";
import { Ago, hours } from "../../parts/ago";
import { useCause } from "../../parts/cause";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";
import { GroupActs } from "./group-acts";
import { Approvals } from "./approvals";
import type { InboxGroup } from "./inbox-group";
import { Storm } from "./storm";

const SHOWN = 10;

function Members({ group }: { group: InboxGroup }) {
  const texts = useTexts();
  const members = useQuery({
    queryKey: ["members", group.fingerprint, group.cause, group.owner, group.group],
    queryFn: () => {
      const state = group.group ? "held,waiting" : "held";
      const query = { state, fingerprint: group.fingerprint, cause: group.cause, owner: group.owner, group: group.group, limit: SHOWN };
      return told(api.GET("/v1/incidents", { params: { query } }));
    },
  });
  return (
    <section aria-labelledby="members">
      <Title order={2} id="members" mb={4}>
        {texts.inbox.members}
      </Title>
      <ProblemBox problem={members.error} />
      <List size="sm" spacing={4} listStyleType="none">
        {members.data?.incidents.map((one) => (
          <List.Item key={one.id}>
            <Anchor component={Link} href={`/incidents/${one.id}`} fz="sm">
              {visible(one.task || one.job.slice(0, 8) || one.run.slice(0, 8))}
            </Anchor>{" "}
            <Text span c="dimmed" fz="sm">
              {visible(one.owner)} · <Ago at={one.at} />
            </Text>
          </List.Item>
        ))}
      </List>
    </section>
  );
}

/** One group: what is known of it, and what can be done. */
export function GroupPanel({ group }: { group: InboxGroup }) {
  const texts = useTexts();
  const cause = useCause();
  return (
    <Stack gap="md">
      <div>
        {group.title && (
          <Text className="plain log" mb="xs">
            {visible(group.title)}
          </Text>
        )}
        <Text>{cause(group.cause)[1]}</Text>
        <Text c="dimmed" fz="sm">
          {texts.inbox.number}: {group.count.toLocaleString(texts.language)} · {texts.inbox.hours}: {hours(texts, group.core_hours)}
        </Text>
        {group.note && (
          <Text className="plain log" mt="xs">
            {visible(group.note)}
          </Text>
        )}
      </div>
      <Divider />
      {group.waits_for === "a person" && <GroupActs group={group} />}
      {group.waits_for === "an approval" && <Approvals />}
      {group.group && <Storm group={group} />}
      <Divider />
      <Members group={group} />
    </Stack>
  );
}
