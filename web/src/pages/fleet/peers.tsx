import { Badge, Code, Stack, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api, told, type Schemas } from "../../api/client";
import { Ago } from "../../parts/ago";
import { Plain, visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { Rows, type Column } from "../../parts/rows";
import { useTexts } from "../../texts/texts";

type Peer = Schemas["PeerOut"];
/** A reconciler asks every peer about once a second; the page reads what was told. */
const EVERY = 5_000;

function Status({ peer }: { peer: Peer }) {
  const words = useTexts().fleet;
  const away = peer.asked && !peer.connected;
  return (
    <>
      <Badge variant="light" color={away ? "red" : peer.asked ? "green" : "gray"} c={away ? "var(--bad)" : "var(--ink)"} tt="none" data-status={away ? "away" : peer.asked ? "answers" : "not-asked"}>
        {away ? words.away : peer.asked ? words.answers : words.notAsked}
      </Badge>
      <Text fz="xs" c="dimmed">
        {!peer.asked && words.notAskedWords}
        {peer.asked && peer.heard === null && words.neverHeard}
        {peer.asked && peer.heard !== null && (
          <>
            {words.heardLast} <Ago at={peer.heard} />
          </>
        )}
      </Text>
    </>
  );
}

/** What the peer told of itself; of one that is silent, what it told last. */
function Room({ peer }: { peer: Peer }) {
  const texts = useTexts();
  const words = texts.fleet;
  if (peer.heard === null) return <>–</>;
  return (
    <Text component="div" fz="sm" c={peer.connected ? undefined : "dimmed"}>
      {!peer.connected && words.asOfThen} {words.free(peer.free, peer.slots)}
      <Text fz="xs" c="dimmed">
        {words.queue(peer.queued, texts.overview.seconds(peer.turn))}
      </Text>
    </Text>
  );
}

/** Other domains that sub-flows may be sent to, or that send theirs. */
export function Peers() {
  const texts = useTexts();
  const words = texts.fleet;
  const found = useQuery({
    queryKey: ["fleet", "peers"],
    queryFn: () => told(api.GET("/v1/peers")),
    refetchInterval: EVERY,
    placeholderData: keepPreviousData,
  });
  const columns = useMemo<Column<Peer>[]>(
    () => [
      {
        accessorKey: "peer",
        header: words.peer,
        cell: ({ row: { original } }) => (
          <>
            <Text fz="sm" fw={600}>
              {visible(original.peer)}
            </Text>
            <Text fz="xs" c="dimmed" className="plain">
              {visible(original.url)}
            </Text>
          </>
        ),
      },
      { id: "status", header: words.status, accessorFn: (one) => Number(one.connected), cell: ({ row }) => <Status peer={row.original} /> },
      { id: "room", header: words.room, accessorFn: (one) => one.free, cell: ({ row }) => <Room peer={row.original} /> },
      { id: "sends", header: words.sends, accessorFn: (one) => one.sends.join(", "), cell: ({ row }) => visible(row.original.sends.join(", ")) || "–" },
      {
        id: "tenants",
        header: words.takes,
        accessorFn: (one) => Object.keys(one.tenants).join(", "),
        cell: ({ row }) =>
          visible(
            Object.entries(row.original.tenants)
              .map(([theirs, ours]) => `${theirs} → ${ours}`)
              .join(", "),
          ) || "–",
      },
      { accessorKey: "lease", header: words.lease, meta: { numbers: true }, cell: ({ row }) => texts.overview.seconds(row.original.lease) },
      { accessorKey: "cost", header: words.cost, meta: { numbers: true }, cell: ({ row }) => row.original.cost.toLocaleString(texts.language) },
    ],
    [texts, words],
  );
  if (found.data === undefined) return <ProblemBox problem={found.error} />;
  return (
    <Stack gap="xs">
      <ProblemBox problem={found.error} />
      {found.data.peers.length === 0 ? (
        <>
          <Text>{words.noPeers}</Text>
          <Code block tabIndex={0}>
            {words.peerCommand}
          </Code>
        </>
      ) : (
        <Rows caption={words.tabs.peers} columns={columns} rows={found.data.peers} idOf={(one) => one.peer} />
      )}
      <Text fz="sm" c="dimmed">
        {words.ownKey} <Plain text={found.data.key} />
      </Text>
    </Stack>
  );
}
