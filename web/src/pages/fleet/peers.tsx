import { Code, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api, told, type Schemas } from "../../api/client";
import { Plain, visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { Rows, type Column } from "../../parts/rows";
import { useTexts } from "../../texts/texts";

type Peer = Schemas["PeerOut"];

/** Other domains that sub-flows may be sent to, or that send theirs. */
export function Peers() {
  const texts = useTexts();
  const words = texts.fleet;
  const found = useQuery({ queryKey: ["fleet", "peers"], queryFn: () => told(api.GET("/v1/peers")) });
  const columns = useMemo<Column<Peer>[]>(
    () => [
      { accessorKey: "peer", header: words.peer, cell: ({ row }) => visible(row.original.peer) },
      { accessorKey: "url", header: words.address, cell: ({ row }) => <span className="plain">{visible(row.original.url)}</span> },
      { id: "sends", header: words.sends, accessorFn: (one) => one.sends.join(", "), cell: ({ row }) => visible(row.original.sends.join(", ")) },
      {
        id: "tenants",
        header: words.takes,
        accessorFn: (one) => Object.keys(one.tenants).join(", "),
        cell: ({ row }) =>
          visible(
            Object.entries(row.original.tenants)
              .map(([theirs, ours]) => `${theirs} → ${ours}`)
              .join(", "),
          ),
      },
      { accessorKey: "lease", header: words.lease, meta: { numbers: true }, cell: ({ row }) => row.original.lease.toLocaleString(texts.language) },
      { accessorKey: "cost", header: words.cost, meta: { numbers: true }, cell: ({ row }) => row.original.cost.toLocaleString(texts.language) },
    ],
    [texts, words],
  );
  if (found.data === undefined) return <ProblemBox problem={found.error} />;
  return (
    <Stack gap="xs">
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
