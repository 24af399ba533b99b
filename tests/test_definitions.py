"""The size budgets of the project, its definitions that nobody uses, and its constants and nouns that stand twice.

A budget is raised only here, with its reason.
"""

import ast
import re
from collections.abc import Iterator, Sequence

import pytest

from tests.source import PROJECT, Module, functions_of, module_of, shipped_modules

pytestmark = pytest.mark.source

FUNCTION_LINES_MAX = 50
MODULE_LINES_MAX = 600
PARAMETERS_MAX = 6
CLASS_LINES_MAX = 300
CLASS_METHODS_MAX = 25

# What is above its budget from before there was one: it may shrink, and goes from here when it fits.
_OLD = "from before the budget: it may only shrink"

# Keys are `module` (its lines), `module:function` (lines), `module:function()` (parameters), `module:Class` (lines) and
# `module:Class{}` (methods); values are the limit and the reason.
LARGER_BUDGETS: dict[str, tuple[int, str]] = {
    "rmqstore.formats.stored_message:StoredMessage{}": (38, "a property for each field of a message, one line each"),
    "rmqstore.dledger.entry_store:EntryStore{}": (34, "DLedger's verbs, and the state that they leave"),
    "rmqstore.dledger.entry_store:EntryStore": (365, "the same"),
    "rmqstore.engine.engine:Engine": (323, "the order in which parts begin and end, in one place"),
    "rmqstore.engine.store:Store{}": (39, "the public verbs, each a call of the part that does it"),
    "rmqstore.formats.index:search()": (7, "a question to an index file, in the order of Java's"),
    "rmqstore.engine.log.put.commitlog:__init__()": (8, "its parts, of which most logs have none"),
    "rmqstore.records.read_batches:read_batches()": (8, "what a walk is told beside its range, each by name"),
    "rmqstore.engine.log.opening:recovered()": (7, "a store, its settings, and who is told and asked"),
    "rmqstore.sink:stage_part()": (7, _OLD),
    "rmqstore.snapshot.survey.survey:survey()": (7, "where a store is, how it is read, what is asked, and how often"),
    "rmqstore.engine.store:open_store()": (8, "what a store is opened with: each by name, with a default"),
    "rmqstore.engine.consumer:__init__()": (7, "the parts of a store that it needs, a protocol each"),
    "rmqstore.aio:open_store()": (7, "the same, but that asyncio needs the threads"),
    "rmqstore.engine.store:__init__()": (8, "the same"),
    "rmqstore.snapshot.reader:select()": (10, "a user's query: each part has a name of its own and a default"),
    "rmqstore.snapshot.snapshot:follow()": (19, "the same, of what comes"),
    "rmqstore.snapshot.reader:scan()": (
        21,
        "the same query, and how its rows are made: each named, so that editors complete it",
    ),
}


def parameter_count(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Parameters without self, cls and the star ones."""
    given = function.args
    names = [argument.arg for argument in given.posonlyargs + given.args + given.kwonlyargs]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def limit_of(key: str, usual: int) -> int:
    return LARGER_BUDGETS.get(key, (usual, ""))[0]


Measure = tuple[str, int, int]  # a key of LARGER_BUDGETS, its count, and the usual budget


def module_measures() -> Iterator[Measure]:
    """Lines of modules and functions, and parameters."""
    for module in shipped_modules():
        yield module.name, len(module.text.splitlines()), MODULE_LINES_MAX
        for function in functions_of(module):
            place = f"{module.name}:{function.name}"
            yield place, (function.end_lineno or 0) - function.lineno + 1, FUNCTION_LINES_MAX
            yield f"{place}()", parameter_count(function), PARAMETERS_MAX


def class_measures(modules: Sequence[Module] | None = None) -> Iterator[Measure]:
    """Lines and methods of classes."""
    for module in modules or shipped_modules():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                methods = [part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
                yield f"{module.name}:{node.name}", (node.end_lineno or 0) - node.lineno + 1, CLASS_LINES_MAX
                yield f"{module.name}:{node.name}{{}}", len(methods), CLASS_METHODS_MAX


@pytest.mark.parametrize("measure", [module_measures, class_measures])
def test_nothing_is_larger_than_its_budget(measure) -> None:
    offences = [f"{key}: {count}, at most {limit_of(key, usual)}" for key, count, usual in measure()
                if count > limit_of(key, usual)]  # fmt: skip
    assert not offences, "\n".join(offences)


def test_larger_budgets_have_a_reason_and_a_use() -> None:
    usual, present = {}, {}
    for measure in (module_measures, class_measures):
        for key, count, budget in measure():
            usual[key] = budget
            present[key] = max(count, present.get(key, 0))
    for key, (limit, reason) in LARGER_BUDGETS.items():
        assert reason
        assert key in present, f"{key} is gone: take it out"
        assert limit > usual[key]
        assert present[key] > usual[key], f"{key} fits the budget: take it out"


def test_a_large_class_is_found() -> None:
    methods = "".join(f"    def m{number}(self): ...\n" for number in range(CLASS_METHODS_MAX + 1))
    large = module_of("jobs.demo", f"class A:\n{methods}" + "    x = 1\n" * CLASS_LINES_MAX)
    assert [count > usual for _, count, usual in class_measures([large])] == [True, True]


# --- definitions that nobody uses, and constants that stand twice


# Definitions that only users, Spark, click and pytest call, or that are there for the table that they are a part of.
CALLED_FROM_OUTSIDE = {
    "rmqstore.core.message:PutResult.msg_ids",
    "rmqstore.cli.inspection.inspect:RecordPlace.convert",  # click
    "rmqstore.cli.metrics.scrapes:_Answer.do_HEAD",  # http.server
    "rmqstore.cli.metrics.scrapes:_Answer.log_message",
    "rmqstore.cli.metrics.scrapes:_Server.handle_error",
    "rmqstore.cli.metrics.scrapes:_Server.service_actions",
    "rmqstore.cli.output:_Warnings.emit",  # logging
    "rmqstore.stats_text:StatisticsCollector.describe",  # prometheus_client
    "rmqstore.engine.log.recovery.plan:RecoveryPlan._repr_html_",  # notebooks, and so the next three
    "rmqstore.snapshot.snapshot:Snapshot._repr_html_",
    "rmqstore.snapshot.verify.verification:Verification._repr_html_",
    "rmqstore.engine.store:Store._repr_html_",
    "spark_source.batch_reader:BatchReader.partitions",
    "spark_source.batch_reader:BatchReader.pruneColumns",
    "spark_source.pushdown_reader:PushdownReader.partitions",
    "spark_source.pushdown_reader:PushdownReader.pushFilters",
    "spark_source.source:RmqStoreDataSource.streamReader",
    "spark_source.source:RmqStoreDataSource.streamWriter",
    "spark_source.stream.reader:StreamReader.getDefaultReadLimit",
    "spark_source.stream.reader:StreamReader.initialOffset",
    "spark_source.stream.reader:StreamReader.partitions",
    "spark_source.stream.reader:StreamReader.prepareForTriggerAvailableNow",
    "spark_source.tables:TableReader.partitions",
    "spark_source.options.texts:WRITE",  # the page of options is made of it
    "rmqstore.formats.sys_flag:MULTI_TAGS",  # all bits of the flag stand there
    "rmqstore.formats.sys_flag:PREPARED",
}
# Pages that tell users what there is to call.
TOLD = (
    "README.md", "docs/dledger.md", "docs/engine.md", "docs/follow.md", "docs/howto/unit-tests.md",
    "docs/reference/testing.md", "docs/spark.md", "docs/options.md",
)  # fmt: skip
_WORD = re.compile(r"[A-Za-z_]\w*")


def definitions(module: Module) -> Iterator[str]:
    """Functions, classes, constants and methods of a module, as `module:Class.method`; not what Python itself calls."""
    for node in module.tree.body:
        found: list[str] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.append(node.name)
            found += [f"{node.name}.{part.name}" for part in getattr(node, "body", [])
                      if isinstance(node, ast.ClassDef) and isinstance(part, ast.FunctionDef)]  # fmt: skip
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
        yield from (f"{module.name}:{name}" for name in found if not name.rpartition(".")[2].startswith("__"))


def used_names(module: Module) -> Iterator[str]:
    """Every name that is read in a module, also as an attribute, or as a text that is nothing but a name."""
    values = [node.value for node in module.tree.body if isinstance(node, ast.Assign)]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in values:
            yield from (_WORD.fullmatch(node.value) and [node.value]) or []


def unused(modules: Sequence[Module], told: str) -> set[str]:
    """The definitions whose names nothing reads, neither in these modules nor in the code of the pages `told`."""
    used = {name for module in modules for name in used_names(module)}
    used |= {word for code in re.findall(r"^```python.*?^```|`[^`\n]+`", told, re.DOTALL | re.MULTILINE)
             for word in _WORD.findall(code)}  # fmt: skip
    every = (name for module in modules for name in definitions(module))
    return {name for name in every if re.split(r"[:.]", name)[-1] not in used}


def test_every_definition_is_used_by_more_than_tests() -> None:
    told = "\n".join((PROJECT / page).read_text(encoding="utf-8") for page in TOLD)
    found = unused(shipped_modules(), told)
    assert found - CALLED_FROM_OUTSIDE == set(), "delete them, or say who calls them"
    assert found >= CALLED_FROM_OUTSIDE, "take out what is used, or gone"


# Name (without the underscore) -> the modules in which a constant of this name and one value stands, and why; new ones
# may not come, and what is listed may only become less.
TWINS: dict[str, set[str]] = {
    "BLOCK_ENTRIES": {"rmqstore.snapshot.plan.splitting", "rmqstore.snapshot.stream.lag"},
    "BLOCK_SLOTS": {
        "rmqstore.directory.queue_ends", "rmqstore.directory.queue_files", "rmqstore.snapshot.survey.truncated_tail",
    },
    "BOUNDARIES": {"rmqstore.engine.log.get.by_time", "rmqstore.snapshot.lookup.by_time"},
    "CHUNK_SIZE": {
        "rmqstore.files.zeros", "rmqstore.engine.log.opening",
        "rmqstore.engine.log.staging.committed_batches", "rmqstore.snapshot.survey.topic_search",
    },
    "COUNT_MAX": {"rmqstore.engine.log.derived.index_log", "rmqstore.snapshot.lookup.by_key"},
    "FAR_COUNT": {"rmqstore.engine.log.derived.consume_queue", "rmqstore.engine.log.recovery.extensions"},
    "FEW_COUNT": {"rmqstore.engine.broker.delay_delivery", "rmqstore.records.batch"},
    "HOUR_MS": {
        "rmqstore.engine.broker.features", "rmqstore.engine.broker.transaction_check",
        "rmqstore.engine.log.retention.plan",
    },
    "I32_MAX": {"rmqstore.core.arguments", "rmqstore.engine.log.recovery.outcome"},
    "I64_MAX": {
        "rmqstore.core.arguments", "rmqstore.directory.log_space", "rmqstore.files.sequence_listing",
    },
    "NOTHING": {
        "rmqstore.engine.log.derived.batch_queue", "rmqstore.engine.log.derived.consume_queue",
        "rmqstore.engine.log.derived.index_log",
    },
    "NUMBER": {"rmqstore.formats.inner_batch", "rmqstore.engine.log.put.deferred_put"},
    "OFFSET_MAX": {"rmqstore.engine.log.encode.property_values", "rmqstore.records.gather"},
    "OLD": {"rmqstore.engine.broker.config_file", "rmqstore.files.replace"},
    "OP_TAG": {"rmqstore.engine.broker.transaction_messages", "rmqstore.snapshot.tables.transaction_rows"},
    "PAGE": {"rmqstore.engine.log.derived.derived_flush", "rmqstore.engine.log.put.commitlog"},
    "PAGE_SIZE": {"rmqstore.files.real_file", "rmqstore.files.residency"},
    "SAMPLE_ENTRIES": {"rmqstore.snapshot.plan.splitting", "rmqstore.snapshot.stream.lag"},
    "UNIT": {"rmqstore.engine.log.derived.consume_queue", "rmqstore.engine.log.derived.queue_table"},
    "WINDOW_SIZE": {"rmqstore.engine.broker.delay_delivery", "rmqstore.formats.record_chain"},
    "ZEROS": {"rmqstore.files.real_file", "rmqstore.engine.log.recovery.apply"},
}  # fmt: skip


def twins(modules: Sequence[Module]) -> dict[str, set[str]]:
    """Constants that stand in several modules under one name (but for underscores) with one value, by the name."""
    places: dict[tuple[str, str], set[str]] = {}
    for module in modules:
        for node in module.tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in targets:
                value = getattr(node, "value", None)
                if isinstance(target, ast.Name) and target.id.isupper() and value is not None:
                    places.setdefault((target.id.strip("_"), ast.unparse(value)), set()).add(module.name)
    found: dict[str, set[str]] = {}
    for (name, _), where in places.items():
        if len(where) > 1:
            found.setdefault(name, set()).update(where)
    return found


def test_no_constant_stands_twice() -> None:
    offences = [f"{name} in {', '.join(sorted(where - TWINS.get(name, set())))}: import it"
                for name, where in twins(shipped_modules()).items() if where - TWINS.get(name, set())]  # fmt: skip
    assert not offences, "\n".join(offences)


def classes_of_one_name(modules: Sequence[Module]) -> dict[str, list[str]]:
    """Public classes that stand in several modules under one name: one noun for two things."""
    places: dict[str, list[str]] = {}
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module.name)
    return {name: where for name, where in places.items() if len(where) > 1}


def test_no_noun_names_two_classes() -> None:
    assert classes_of_one_name(shipped_modules()) == {}


def test_what_only_tests_use_is_found() -> None:
    text = "A = 1\nB = 2\nclass C:\n    def d(self): ...\n    def e(self): ...\ndef f():\n    return C().d(), B"
    assert unused([module_of("jobs.demo", text)], "`f`") == {"jobs.demo:A", "jobs.demo:C.e"}


def test_a_constant_that_stands_twice_is_found() -> None:
    files = [module_of("jobs.a", "_SIZE = 2 * 3\nOTHER = 1"), module_of("jobs.b", "SIZE: int = 2*3\nOTHER = 2")]
    assert twins(files) == {"SIZE": {"jobs.a", "jobs.b"}}


def test_a_noun_for_two_classes_is_found() -> None:
    files = [
        module_of("jobs.a", "class Claim: ...\nclass _Own: ..."),
        module_of("jobs.b", "class Claim: ...\nclass _Own: ..."),
    ]
    assert classes_of_one_name(files) == {"Claim": ["jobs.a", "jobs.b"]}
