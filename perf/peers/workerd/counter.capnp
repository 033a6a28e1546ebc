# A counter with SQLite in workerd. The data directory and the address come from the command line:
#   workerd serve counter.capnp --directory-path=data=/absolute/dir --socket-addr=http=127.0.0.1:8787

using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    (name = "main", worker = .counter),
    (name = "data", disk = (writable = true)),
  ],
  sockets = [ (name = "http", http = (), service = "main") ],
);

const counter :Workerd.Worker = (
  modules = [ (name = "counter.js", esModule = embed "counter.js") ],
  compatibilityDate = "2025-09-01",
  durableObjectNamespaces = [
    (className = "Counter", uniqueKey = "wasmkeep-perf-counter", enableSql = true),
  ],
  durableObjectStorage = (localDisk = "data"),
  bindings = [ (name = "COUNTER", durableObjectNamespace = "Counter") ],
);
