"""Client of the Java oracle, and the one list of questions that golden stores are asked.

`Oracle` talks to one JVM (run.sh) in JSON lines. `capture` opens a store with it and returns everything that
RocketMQ answers about that store; make_golden.py writes these answers down, check_golden.py asks again and compares.
"""
import gzip
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


class Oracle:
    """One JVM running StoreDriver. Every call is one request line and one reply line."""

    def __init__(self, version, log=None):
        self.home = tempfile.mkdtemp(prefix="oracle-home-")
        environment = dict(os.environ, ORACLE_HOME=self.home)
        if "ORACLE_BUILD_ROOT" in os.environ:
            environment["ORACLE_BUILD"] = os.path.join(os.environ["ORACLE_BUILD_ROOT"], version)
        self.process = subprocess.Popen(
            [str(HERE / "run.sh"), version], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=open(log, "a") if log else subprocess.DEVNULL, text=True, encoding="utf-8", env=environment)

    def call(self, op, **fields):
        self.process.stdin.write(json.dumps(dict(fields, op=op)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise EOFError(f"the oracle ended at {op}")
        reply = json.loads(line)
        if "error" in reply:
            raise RuntimeError(f"{op}: {reply['error']}")
        return reply["ok"]

    def ask(self, op, **fields):
        """As call, but what RocketMQ throws is an answer too: {"exception": its class}."""
        try:
            return self.call(op, **fields)
        except RuntimeError as error:
            return {"exception": str(error).split(": ", 1)[1].split("\n")[0].split(":")[0]}

    def open(self, path, config, topics=None, **more):
        """Opens a store; `name` keeps it open beside others (see the requests `use` and `closeAll`)."""
        config = {k: v.replace("{store}", str(path)) if isinstance(v, str) else v for k, v in config.items()}
        return self.call("open", path=str(path), config=config, topics=topics or {}, **more)

    def halt(self):
        """Ends the JVM without any shutdown work."""
        try:
            self.process.stdin.write('{"op":"halt"}\n')
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        self.end()

    def end(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.stdout.close()
        self.process.wait(60)
        shutil.rmtree(self.home, ignore_errors=True)


def chain(oracle, topic, queue_id, start, end, size):
    """The getMessage calls of a consumer that reads a queue from start on."""
    calls, offset = [], start
    while offset < end and len(calls) < 10000:
        reply = oracle.ask("get", topic=topic, queueId=queue_id, offset=offset, max=size)
        calls.append(reply)
        if "exception" in reply or reply["status"] is None or reply["next"] <= offset:
            break
        offset = reply["next"]
    return calls


def capture(version, store, config, topics=None, key_queries=(), time_queries=(), log=None):
    """Opens the store in place (RocketMQ may change it: pass a copy) and returns all its answers."""
    oracle = Oracle(version, log)
    try:
        return ask_all(oracle, version, store, config, topics, key_queries, time_queries)
    finally:
        oracle.halt()


def queue_file_times(store, topic, queue_id):
    """Modification times in ms of a queue's files, by which 4.9 answers time questions."""
    files = (pathlib.Path(store) / "consumequeue" / topic / str(queue_id)).glob("*")
    return {p.name: p.stat().st_mtime_ns // 1_000_000 for p in files}


def ask_all(oracle, version, store, config, topics=None, key_queries=(), time_queries=(), **more):
    """As capture, in a JVM that runs already, and which keeps the store open; `more` goes to `open`."""
    store = pathlib.Path(store)
    index_names = {p.name for p in (store / "index").glob("*")}
    touched = {(q["topic"], q["queueId"]): queue_file_times(store, q["topic"], q["queueId"]) for q in time_queries}
    try:
        opened = oracle.open(store, config, topics, **more)
    except RuntimeError as error:
        return {"open": {"load": False, "error": str(error).split("\n")[0][:300]}}
    if not opened["load"]:
        return {"open": {"load": False}}
    oracle.call("settle")
    state = oracle.call("state")
    created = False
    for file in state["indexFiles"]:
        if file["name"] not in index_names:
            file["name"] = "created at open"
            created = True
    if created:
        # full index files are flushed, and the checkpoint advanced, by one thread each: the order is chance
        state["checkpoint"].update(indexMsgTimestamp=None, minTimestampIndex=None)
    return {"open": {"load": True}} | answers(oracle, version, store, state, key_queries, time_queries, touched)


def answers(oracle, version, store, state, key_queries=(), time_queries=(), touched=None):
    """Everything that RocketMQ answers about the store it has open and whose state it has just told.

    4.9's answers to time questions are left out where a queue's files are not as old as `touched` says.
    """
    state = dict(state)
    del state["behind"]
    state["queues"] = {k: q for k, q in state["queues"].items() if q["max"] > 0 or q["maxPhysicOffset"] not in (-1, None)}
    log_walk = oracle.call("walk")
    records = log_walk.pop("records")
    by_offset = {r.get("physicalOffset"): {k: v for k, v in r.items() if k != "dispatchTagsCode"} for r in records}
    queues = {}
    for name, bound in state["queues"].items():
        topic, queue_id = name.rsplit("/", 1)
        queue_id = int(queue_id)
        queue = oracle.call("entries", topic=topic, queueId=queue_id)
        low, high = bound["min"], bound["max"]
        queue["reads"] = chain(oracle, topic, queue_id, low, high, 32)
        queue["edges"] = [oracle.ask("get", topic=topic, queueId=queue_id, offset=o, max=1)
                          for o in sorted({-1, 0, low - 1, low, high - 1, high, high + 1, high + 1000})]
        dump = oracle.ask("dump", queues=[[topic, queue_id]])
        queue["readsEqualLog"] = all(by_offset.get(m.get("physicalOffset")) == m for m in dump.get("messages", [{}]))
        queues[name] = queue
    keys = []
    for q in key_queries:
        q = {k: q[k] for k in ("topic", "key", "begin", "end", "max")}
        index = oracle.call("queryOffset", **q)
        keys.append(dict(q, physicalOffsets=oracle.ask("query", **q), index=index["physicalOffsets"],
                         lastUpdateTimestamp=index["lastUpdateTimestamp"], lastUpdatePhyOffset=index["lastUpdatePhyOffset"]))
    times = []
    for q in time_queries:
        q = {k: q[k] for k in ("topic", "queueId", "timestamp")}
        answer = dict(q, offset=oracle.ask("offsetByTime", **q))
        if not version.startswith("4."):
            answer["lower"] = oracle.ask("offsetByTime", boundary="LOWER", **q)
            answer["upper"] = oracle.ask("offsetByTime", boundary="UPPER", **q)
        elif touched is not None and queue_file_times(store, q["topic"], q["queueId"]) != touched[q["topic"], q["queueId"]]:
            answer["offset"] = None                       # 4.9 goes by the files' times, and opening has just changed them
        times.append(answer)
    return {"state": state, "log": log_walk, "records": records, "queues": queues, "keyQueries": keys, "timeQueries": times}


def read_expected(folder):
    """expected.json of one case as it stands, packed with gzip or not."""
    packed = folder / "expected.json.gz"
    if packed.exists():
        return json.loads(gzip.decompress(packed.read_bytes()))
    return json.loads((folder / "expected.json").read_text(encoding="utf-8"))


def load_expected(folder):
    """expected.json of one case as if nothing were shared: records and confirmed puts of the base case filled in."""
    folder = pathlib.Path(folder)
    expected = read_expected(folder)
    if "recordOffsets" in expected:
        base = read_expected(folder.parent / expected["recordsFrom"])
        records = {r.get("physicalOffset"): r for r in base["records"]}
        records.update((r.get("physicalOffset"), r) for r in expected["recordsChanged"])
        expected["records"] = [records[o] for o in expected["recordOffsets"]]
    before = expected.get("before")
    if before and isinstance(before["acked"], str):
        before["acked"] = load_expected(folder.parent / before["acked"])["before"]["acked"]
    return expected


def differences(a, b, path=""):
    """Paths at which two JSON values differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        out = []
        for k in sorted(set(a) | set(b)):
            if k not in a or k not in b:
                out.append(f"{path}/{k}: only in {'second' if k not in a else 'first'}")
            else:
                out += differences(a[k], b[k], f"{path}/{k}")
        return out
    if isinstance(a, list) and isinstance(b, list):
        out = [] if len(a) == len(b) else [f"{path}: {len(a)} against {len(b)} items"]
        for i, (x, y) in enumerate(zip(a, b)):
            out += differences(x, y, f"{path}/{i}")
        return out
    return [] if a == b else [f"{path}: {str(a)[:120]} against {str(b)[:120]}"]
