import { Table, UnstyledButton } from "@mantine/core";
import { IconChevronDown, IconChevronUp, IconSelector } from "./icons";
import { flexRender, getCoreRowModel, getSortedRowModel, useReactTable, type ColumnDef, type SortingState } from "@tanstack/react-table";
import { useState } from "react";

export type Column<Row> = ColumnDef<Row, any> & { meta?: { numbers?: boolean } };

interface Given<Row> {
  caption: string;
  columns: Column<Row>[];
  rows: Row[];
  idOf(row: Row): string;
  open?: string | null;
  first?: SortingState;
}

/** A table that is sorted by its heads. */
export function Rows<Row>({ caption, columns, rows, idOf, open = null, first = [] }: Given<Row>) {
  const [sorting, setSorting] = useState<SortingState>(first);
  const table = useReactTable({
    data: rows,
    columns,
    state: { sorting },
    onSortingChange: setSorting,
    getRowId: idOf,
    getCoreRowModel: getCoreRowModel(),
    getSortedRowModel: getSortedRowModel(),
  });
  return (
    <Table.ScrollContainer minWidth={720} scrollAreaProps={{ viewportProps: { tabIndex: 0, role: "region", "aria-label": caption } }}>
      <Table className="rows" verticalSpacing={6} highlightOnHover aria-label={caption}>
        <Table.Thead>
          <Table.Tr>
            {table.getFlatHeaders().map((head) => {
              const numbers = (head.column.columnDef as Column<Row>).meta?.numbers === true;
              const sorted = head.column.getIsSorted();
              const words = flexRender(head.column.columnDef.header, head.getContext());
              const Icon = sorted === "asc" ? IconChevronUp : sorted === "desc" ? IconChevronDown : IconSelector;
              return (
                <Table.Th
                  key={head.id}
                  scope="col"
                  className={numbers ? "numbers" : undefined}
                  aria-sort={sorted === "asc" ? "ascending" : sorted === "desc" ? "descending" : undefined}
                >
                  {head.column.getCanSort() ? (
                    <UnstyledButton fz="sm" onClick={head.column.getToggleSortingHandler()}>
                      {words} <Icon size={12} aria-hidden />
                    </UnstyledButton>
                  ) : (
                    words
                  )}
                </Table.Th>
              );
            })}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {table.getRowModel().rows.map((row) => (
            <Table.Tr key={row.id} data-open={row.id === open}>
              {row.getVisibleCells().map((cell) => (
                <Table.Td key={cell.id} className={(cell.column.columnDef as Column<Row>).meta?.numbers ? "numbers" : undefined}>
                  {flexRender(cell.column.columnDef.cell, cell.getContext())}
                </Table.Td>
              ))}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}
