/** The words of `src/api.ts` and its neighbours are those of the daemon's own document. */

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

const ROOT = process.env["CONSOLE_ROOT"]!;
const DOCUMENT = join(ROOT, "../docs/openapi.json");

interface Schema {
  properties?: Record<string, unknown>;
  allOf?: Schema[];
  oneOf?: Schema[];
  anyOf?: Schema[];
  $ref?: string;
}

/** Fields of the interfaces, read from the source itself. */
function interfaces(): Map<string, Set<string>> {
  const text = ["api.ts", "api-access.ts", "api-objects.ts", "api-space.ts"].map((file) => readFileSync(join(ROOT, "src", file), "utf8")).join("\n");
  const found = new Map<string, Set<string>>();
  for (const [, name, body] of text.matchAll(/export interface (\w+) \{([^}]*)\}/g)) {
    found.set(name!, new Set([...body!.matchAll(/^ {2}(\w+)\??:/gm)].map((field) => field[1]!)));
  }
  return found;
}

/** All properties of a schema, those of its parts and alternatives included. */
function properties(schema: Schema, all: Record<string, Schema>, into = new Set<string>()): Set<string> {
  for (const name of Object.keys(schema.properties ?? {})) into.add(name);
  for (const part of [...(schema.allOf ?? []), ...(schema.oneOf ?? []), ...(schema.anyOf ?? [])]) properties(part, all, into);
  const target = schema.$ref ? all[schema.$ref.split("/").pop()!] : undefined;
  if (target) properties(target, all, into);
  return into;
}

test("the interfaces are read", () => {
  const found = interfaces();
  assert.ok(found.size > 30);
  assert.deepEqual([...found.get("Hello")!], ["version", "instance", "latest_event"]);
});

test("each interface has the fields of the daemon's schema", { skip: existsSync(DOCUMENT) ? false : "docs/openapi.json is not there yet: it comes with the REST API" }, () => {
  const schemas = (JSON.parse(readFileSync(DOCUMENT, "utf8")) as { components: { schemas: Record<string, Schema> } }).components.schemas;
  const wrong: string[] = [];
  for (const [name, fields] of interfaces()) {
    const schema = schemas[name];
    if (!schema) {
      wrong.push(`${name}: the document has no such schema`);
      continue;
    }
    const told = properties(schema, schemas);
    for (const field of fields) if (!told.has(field)) wrong.push(`${name}.${field}: not in the document`);
    for (const field of told) if (!fields.has(field)) wrong.push(`${name}.${field}: not in src/api.ts`);
  }
  assert.deepEqual(wrong, []);
});
