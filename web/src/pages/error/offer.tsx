import { Button, Group, Stack, Text, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "wouter";
import { api, told, type Schemas } from "../../api/client";
import { useMay } from "../../api/session";
import { ProblemBox } from "../../parts/problem-box";
import { conclusionWords, type Step } from "../../parts/step-words";
import { useTexts } from "../../texts/texts";

type Proposal = Schemas["ProposalOut"];
const PATH = { level: "domain", name: "site" } as const;

function One({ proposal, fingerprint }: { proposal: Proposal; fingerprint: string }) {
  const texts = useTexts();
  const words = texts.error.offer;
  const queries = useQueryClient();
  const again = () => queries.invalidateQueries({ queryKey: ["offer", fingerprint] });
  const adding = useMutation({
    mutationFn: () => told(api.POST("/v1/rules/{level}/{name}", { params: { path: PATH }, body: { ...proposal.rule, confirmed: false } as Schemas["RuleIn"] })),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["rules"] }),
  });
  const dismissing = useMutation({
    mutationFn: () =>
      told(api.POST("/v1/rules/{level}/{name}/proposals/{proposal}/dismiss", { params: { path: { ...PATH, proposal: proposal.id } }, body: { reason: "" } })),
    onSuccess: again,
  });
  return (
    <Stack gap={4}>
      <Text fz="sm">{words.did(proposal.helped, proposal.tried, proposal.by_hand)}</Text>
      <Text fz="sm" fw={600}>
        {conclusionWords(texts, { steps: proposal.rule.conclusion.steps as Step[] })}
      </Text>
      <Text fz="sm">{words.replay(proposal.replay.incidents, proposal.replay.differs, proposal.replay.wrong)}</Text>
      <ProblemBox problem={adding.error ?? dismissing.error} />
      {adding.isSuccess ? (
        <Text fz="sm" role="status">
          {words.added} <Link href="/rules/domain/site">{texts.pages.rules}</Link>
        </Text>
      ) : (
        <Group gap="xs">
          <Button size="xs" loading={adding.isPending} onClick={() => adding.mutate()}>
            {words.add}
          </Button>
          <Button size="xs" variant="default" loading={dismissing.isPending} onClick={() => dismissing.mutate()}>
            {words.dismiss}
          </Button>
        </Group>
      )}
    </Stack>
  );
}

/** What people did to these failures by hand, as a rule that only watches at first. */
export function Offer({ fingerprint }: { fingerprint: string }) {
  const texts = useTexts();
  const may = useMay("rule-author");
  const found = useQuery({
    queryKey: ["offer", fingerprint],
    queryFn: () => told(api.GET("/v1/rules/{level}/{name}/proposals", { params: { path: PATH, query: { fingerprint } } })),
    enabled: may,
    staleTime: 60_000,
  });
  // The other form of the answer is a stream, which is not asked for here.
  const proposals = typeof found.data === "object" ? found.data.proposals.filter((one) => one.by_hand > 0) : [];
  if (!may || proposals.length === 0) return null;
  return (
    <section aria-labelledby="offer">
      <Stack gap="sm">
        <Title order={2} id="offer">
          {texts.error.offer.title}
        </Title>
        {proposals.slice(0, 2).map((one) => (
          <One key={one.id} proposal={one} fingerprint={fingerprint} />
        ))}
      </Stack>
    </section>
  );
}
