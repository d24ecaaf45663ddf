import { Anchor, List, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { api, told } from "../../api/client";
import { Ago } from "../../parts/ago";
import { useIncidentState } from "../../parts/incident-state";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";

const SHOWN = 10;

/** The newest failures of an error, each with the way to it. */
export function Members({ fingerprint }: { fingerprint: string }) {
  const texts = useTexts();
  const stateOf = useIncidentState();
  const members = useQuery({
    queryKey: ["members", fingerprint],
    queryFn: () => told(api.GET("/v1/incidents", { params: { query: { fingerprint, limit: SHOWN } } })),
  });
  return (
    <section aria-labelledby="members">
      <Title order={2} id="members" mb={4}>
        {texts.error.members}
      </Title>
      <ProblemBox problem={members.error} />
      <List size="sm" spacing={4} listStyleType="none">
        {members.data?.incidents.map((one) => (
          <List.Item key={one.id}>
            <Anchor component={Link} href={`/incidents/${one.id}`} fz="sm" underline="always">
              {visible(one.task || one.job.slice(0, 8) || one.run.slice(0, 8) || one.id.slice(0, 8))}
            </Anchor>{" "}
            <Text span c="dimmed" fz="sm">
              {visible(one.owner)} · {one.host && <>{visible(one.host)} · </>}
              {stateOf(one)} · <Ago at={one.at} />
            </Text>
          </List.Item>
        ))}
      </List>
    </section>
  );
}
