// The counter sample as a Durable Object: the same requests, the same table, the same statements.

import { DurableObject } from "cloudflare:workers";

const ADD =
  "INSERT INTO counter VALUES (1, 1) ON CONFLICT DO UPDATE SET n = n + 1 RETURNING n";
const READ = "SELECT n FROM counter";
const PREFIX = "/actor/counter/";

export class Counter extends DurableObject {
  constructor(context, env) {
    super(context, env);
    this.sql = context.storage.sql;
    this.sql.exec("CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY, n INTEGER)");
  }

  // The platform holds the answer back until what the event wrote is durable.
  async fetch(request) {
    switch (request.method) {
      case "POST":
        return new Response(`${this.sql.exec(ADD).one().n}\n`);
      case "GET": {
        const rows = this.sql.exec(READ).toArray();
        return new Response(`${rows.length ? rows[0].n : 0}\n`);
      }
      default:
        return new Response("this counter takes GET and POST\n", { status: 404 });
    }
  }
}

export default {
  fetch(request, env) {
    const { pathname } = new URL(request.url);
    if (!pathname.startsWith(PREFIX)) {
      return new Response("not found\n", { status: 404 });
    }
    const id = env.COUNTER.idFromName(pathname.slice(PREFIX.length));
    return env.COUNTER.get(id).fetch(request);
  },
};
