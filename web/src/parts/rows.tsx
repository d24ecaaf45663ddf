import { Table, UnstyledButton } from "@mantine/core";
import { IconChevronDown, IconChevronUp, IconSelector } from "./icons";
import { flexRender, getCoreRowModel, getSortedRowModel, useReactTable, type ColumnDef, type SortingState } from "@tanstack/react-table";
import { useState, type MouseEvent } from "react";

export type Column<Row> = ColumnDef<Row, any> & { meta?: { numbers?: boolean } };

interface Given<Row> {
  caption: string;
  columns: Column<Row>[];
  rows: Row[];
  idOf(row: Row): string;
  /** What a click anywhere in a row does; its link does the same for who uses no mouse. */
  openRow?(row: Row): void;
  first?: SortingState;
}

/** Whether a click was meant for the row, and not for something in it, or to mark a text. */
const meant = (event: MouseEvent<HTMLElement>): boolean =>
  (event.target as HTMLElement).closest("a, button") === null && (getSelection()?.toString() ?? "") === "";

/** A table that is sorted by its heads. */
export function Rows<Row>({ caption, columns, rows, idOf, openRow, first = [] }: Given<Row>) {
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
            <Table.Tr
              key={row.id}
              style={openRow && { cursor: "pointer" }}
              onClick={openRow && ((event) => meant(event) && openRow(row.original))}
            >
              {row.getVisibleCells().map((cell) => {
                // Called, not made an element of: columns made anew, with what came later, would be other components, and a focused link would be lost.
                const draw = cell.column.columnDef.cell;
                return (
                  <Table.Td key={cell.id} className={(cell.column.columnDef as Column<Row>).meta?.numbers ? "numbers" : undefined}>
                    {typeof draw === "function" ? draw(cell.getContext()) : draw}
                  </Table.Td>
                );
              })}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}
