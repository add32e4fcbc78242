/** A table of rows that are all alike: the first cell names the row; on phones each says what it is. */

import type { ComponentChildren } from "preact";

/** Head, cell, and "right" for figures. */
export type Column<T> = [head: string, cell: (row: T) => ComponentChildren, align?: "right"];

export function Table<T>({
  columns,
  rows,
  chosen,
}: {
  columns: Column<T>[];
  rows: T[];
  chosen?: (row: T) => boolean;
}) {
  return (
    <table class="compact">
      <thead>
        <tr>
          {columns.map(([head, , align]) => (
            <th key={head} scope="col" class={align}>
              {head}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row, index) => (
          <tr key={index} class={chosen?.(row) ? "chosen" : ""}>
            {columns.map(([head, cell, align], at) =>
              at === 0 ? (
                <th key={head} scope="row" class={align}>
                  {cell(row)}
                </th>
              ) : (
                <td key={head} class={align} data-label={head}>
                  {cell(row)}
                </td>
              ),
            )}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
