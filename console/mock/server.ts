/** An HTTP server with the daemon's paths over a [`World`]: for development, and for browser tests that must be quick. */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { readFileSync } from "node:fs";
import { extname, join, normalize } from "node:path";
import type { SessionView } from "../src/api";
import { handle, Problem } from "./api";
import { World } from "./world";

const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
const TYPES: Record<string, string> = { ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml" };
const CSRF = "mock-csrf";

export interface MockOptions {
  dist: string;
  volumes?: number;
  port?: number;
  /** Whether a token is asked for: "operate-token" or "view-token"; the code is "good-code". */
  auth?: boolean;
}

export class Mock {
  world: World;
  private readonly streams = new Set<ServerResponse>();
  private readonly sockets = new Set<Socket>();
  private readonly sessions = new Map<string, SessionView>();
  private readonly server: Server;
  private readonly clock: ReturnType<typeof setInterval>;
  private down = false;

  constructor(private readonly options: MockOptions) {
    this.world = new World(options.volumes ?? 6);
    this.server = createServer((request, response) => void this.serve(request, response));
    this.server.on("connection", (socket) => {
      this.sockets.add(socket);
      socket.on("close", () => this.sockets.delete(socket));
    });
    this.begin(this.world);
    this.clock = setInterval(() => this.second(), 1000);
  }

  /** Goes on with another world; what pages know of the old one is theirs to forget. */
  begin(world: World): void {
    this.world = world;
    this.world.listeners.add((told) => this.send(told.event, told.data, told.event === "event" ? told.data.number : undefined));
  }

  async start(): Promise<string> {
    await new Promise<void>((resolve) => this.server.listen(this.options.port ?? 0, "127.0.0.1", resolve));
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}/`;
  }

  async stop(): Promise<void> {
    clearInterval(this.clock);
    for (const socket of this.sockets) socket.destroy();
    await new Promise<void>((resolve) => this.server.close(() => resolve()));
  }

  /** As if the daemon were gone: connections break and none is answered. */
  goDown(): void {
    this.down = true;
    for (const socket of this.sockets) socket.destroy();
  }

  /** Back again, as the same daemon or as one that was restarted. */
  comeBack(restarted: boolean): void {
    this.down = false;
    if (!restarted) return;
    this.world.instance = String(Number(this.world.instance) + 1);
    this.world.events.length = 0;
    this.world.jobs.clear();
    this.world.started_s = Math.floor(Date.now() / 1000);
    this.world.tell("info", "fast", "brought back");
  }

  private second(): void {
    this.world.tick();
    if (this.streams.size > 0) this.send("sample", this.world.sample(Math.floor(Date.now() / 1000)));
  }

  private send(event: string, data: unknown, id?: number): void {
    const text = `${id === undefined ? "" : `id: ${id}\n`}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
    for (const stream of this.streams) stream.write(text);
  }

  private session(request: IncomingMessage): SessionView | null {
    if (!this.options.auth) return { role: "operate", by: "session", name: "mock", csrf: CSRF };
    const id = /hearth=([^;]+)/.exec(request.headers.cookie ?? "")?.[1];
    return (id && this.sessions.get(id)) || null;
  }

  private async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (this.down) return void request.socket.destroy();
    const url = new URL(request.url ?? "/", "http://mock");
    try {
      if (!url.pathname.startsWith("/api/v1")) return this.asset(url.pathname, response);
      await this.api(request, response, url);
    } catch (error) {
      const problem = error instanceof Problem ? error : new Problem(500, "failed", `the mock stumbled: ${String(error)}`, "look at its code");
      response.writeHead(problem.status, { "content-type": "application/problem+json" });
      response.end(JSON.stringify({ type: `/problems/${problem.kind}`, title: problem.kind, status: problem.status, detail: problem.detail, remedy: problem.remedy, kind: problem.kind, instance: url.pathname }));
    }
  }

  private async api(request: IncomingMessage, response: ServerResponse, url: URL): Promise<void> {
    const path = url.pathname.slice("/api/v1".length);
    const method = request.method ?? "GET";
    let text = "";
    for await (const chunk of request) text += String(chunk);
    const body = (text === "" ? undefined : JSON.parse(text)) as unknown;
    const json = (value: unknown, headers: Record<string, string> = {}): void => {
      response.writeHead(200, { "content-type": "application/json", ...headers });
      response.end(JSON.stringify(value));
    };
    if (path === "/session" && method === "POST") {
      const { token, code } = body as { token?: string; code?: string };
      const role = token === "operate-token" || code === "good-code" ? "operate" : token === "view-token" ? "view" : null;
      if (!role) throw new Problem(401, "unauthorised", code ? "the code is not known or was used" : "the token is not known", code ? "run hearth console again" : "check it, or make one with hearth token create");
      const id = String(Math.random()).slice(2);
      const view: SessionView = { role, by: "session", name: role === "view" ? "wall-screen" : "admin", csrf: CSRF };
      this.sessions.set(id, view);
      return json(view, { "set-cookie": `hearth=${id}; HttpOnly; SameSite=Strict; Path=/` });
    }
    const session = this.session(request);
    if (!session) throw new Problem(401, "unauthorised", "not logged in", "log in with a token");
    if (path === "/session" && method === "GET") return json(session);
    if (method !== "GET") {
      if (request.headers["x-hearth-csrf"] !== CSRF) throw new Problem(403, "forbidden", "the header x-hearth-csrf is missing or wrong", "load the page again");
      if (path === "/session") {
        this.sessions.clear();
        return json({ done: true });
      }
      if (session.role !== "operate") throw new Problem(403, "forbidden", "the role view may not change anything", "use a token with the role operate");
    }
    if (path === "/stream") return this.stream(request, response);
    const answer = await handle(this.world, method, path, url.searchParams, body);
    // Sessions end with their token.
    const token = method === "DELETE" ? /^\/tokens\/(.+)$/.exec(path)?.[1] : undefined;
    if (token !== undefined) for (const [id, { name }] of this.sessions) if (name === decodeURIComponent(token)) this.sessions.delete(id);
    json(answer);
  }

  private stream(request: IncomingMessage, response: ServerResponse): void {
    response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
    response.write(`event: hello\ndata: ${JSON.stringify({ version: "0.1.0", instance: this.world.instance, latest_event: this.world.events.length })}\n\n`);
    this.streams.add(response);
    request.on("close", () => this.streams.delete(response));
  }

  private asset(path: string, response: ServerResponse): void {
    const file = join(this.options.dist, normalize(path === "/" ? "/index.html" : path));
    try {
      const bytes = readFileSync(file);
      response.writeHead(200, { "content-type": TYPES[extname(file)] ?? "application/octet-stream", "content-security-policy": CSP, "x-content-type-options": "nosniff" });
      response.end(bytes);
    } catch {
      response.writeHead(404, { "content-type": "text/plain" });
      response.end("not found");
    }
  }
}
