"""Confines ``records.sql`` of network clients to the view ``records``, by lists of harmless operators.

A list of forbidden ones would miss what a new version of Spark adds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from sinksdk.errors import ConfigException
from sinksdk.spark.jvm import each_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEW: Final = "records"

_HOW_TO_ALLOW: Final = "start the server with --config-sql to allow all of Spark's SQL"
_CATALYST: Final = "org.apache.spark.sql.catalyst."
_OF_SPARK: Final = ("expressions.", "org.apache.spark.sql.avro.")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Classes of nodes, without Catalyst's package name. Those that have no children read only the query itself.
_OF_BOTH: Final = _words("""
    expressions.PipeOperator plans.logical.Aggregate plans.logical.Distinct plans.logical.Except
    plans.logical.Expand plans.logical.Filter plans.logical.Generate plans.logical.GlobalLimit
    plans.logical.Intersect plans.logical.Join plans.logical.LateralJoin plans.logical.LocalLimit
    plans.logical.LocalRelation plans.logical.Offset plans.logical.OneRowRelation
    plans.logical.Pivot plans.logical.Project plans.logical.Range plans.logical.RebalancePartitions
    plans.logical.Repartition plans.logical.RepartitionByExpression plans.logical.Sample plans.logical.Sort
    plans.logical.SubqueryAlias plans.logical.Union plans.logical.Unpivot plans.logical.Window
""")
_PARSED: Final = _OF_BOTH | _words("""
    analysis.UnresolvedHaving analysis.UnresolvedInlineTable analysis.UnresolvedQualify
    analysis.UnresolvedRelation analysis.UnresolvedSubqueryColumnAliases analysis.UnresolvedTVFAliases
    analysis.UnresolvedTableValuedFunction plans.logical.UnresolvedHint plans.logical.UnresolvedWith
""")
_ANALYZED: Final = _OF_BOTH | _words("""
    analysis.ResolvedInlineTable plans.logical.CTERelationDef plans.logical.CTERelationRef
    plans.logical.ResolvedHint plans.logical.View plans.logical.WithCTE
""")

# Expressions, besides functions, that the parser leaves unresolved.
_UNRESOLVED: Final = _words("""
    MultiAlias UnresolvedAlias UnresolvedAttribute UnresolvedExtractValue UnresolvedOrdinal UnresolvedRegex
    UnresolvedStar UnresolvedStarExceptOrReplace
""")

# Expressions of Catalyst that call other code than Spark's, or read the session's state.
_OF_OTHERS: Final = _words("""
    ApplyFunctionExpression CallMethodViaReflection ExternalUserDefinedFunction
    FunctionTableSubqueryArgumentExpression PrettyPythonUDF PythonUDAF PythonUDF PythonUDTF ScalaUDF
    TransformExpression TranspiledPythonUDF TryReflect UnresolvedPolymorphicPythonUDTF UserDefinedGenerator
    VariableReference
""")

# Groups of functions that use only their arguments.
_GROUPS: Final = _words("""
    agg_funcs array_funcs bitwise_funcs collection_funcs conditional_funcs conversion_funcs csv_funcs
    date_funcs datetime_funcs generator_funcs hash_funcs json_funcs lambda_funcs map_funcs math_funcs
    predicate_funcs sketch_funcs st_funcs string_funcs struct_funcs url_funcs variant_funcs vector_funcs
    window_funcs
""")

# Allowed functions of other groups. XPath's are missing because their parser loads a DTD from any address,
# Protobuf's because they read a file or load a class.
_FUNCTIONS: Final = _words("""
    aes_decrypt aes_encrypt assert_true bitmap_bit_position bitmap_bucket_number bitmap_count current_catalog
    current_database current_path current_schema current_user hll_sketch_estimate hll_union hmac
    input_file_block_length input_file_block_start input_file_name monotonically_increasing_id raise_error
    session_user spark_partition_id try_aes_decrypt typeof user uuid version
""")

# Functions whose options may name files and addresses, with the number of arguments before these.
_WITH_OPTIONS: Final[Mapping[str, int]] = {
    "from_avro": 2,
    "from_xml": 2,
    "schema_of_avro": 1,
    "schema_of_xml": 1,
    "to_avro": 2,
    "to_xml": 1,
}

# Harmless options of these functions, in lower case because Spark ignores the case.
_OPTIONS: Final = _words("""
    arrayelementname attributeprefix avroschema columnnameofcorruptrecord dateformat datetimerebasemode
    declaration enablestableidentifiersforuniontype excludeattribute ignorenamespace ignoresurroundingspaces
    locale mode nullvalue positionalfieldmatching prefersdecimal recursivefieldmaxdepth roottag rowtag
    samplingratio stableidentifierprefixforuniontype timestampformat timestampntzformat timezone validatename
    valuetag wildcardcolname
""")

# Table functions that use only their arguments.
_TABLES: Final = _words("""
    explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer range stack
    variant_explode variant_explode_outer
""")

_REFLECTION: Final = _words("java_method reflect try_reflect")

_OTHER_RELATIONS: Final[Mapping[str, str]] = {
    "NamedStreamingRelation": "a stream",
    "PlanWithUnresolvedIdentifier": "a relation with a computed name",
    "RelationTimeTravel": "an old version of a relation",
}
_OTHER_NAMES: Final[Mapping[str, str]] = {
    "ExpressionWithUnresolvedIdentifier": "a computed name (IDENTIFIER)",
    "NamedParameter": "a parameter",
    "PosParameter": "a parameter",
}


def confine_parsed(plan: Any, session: SparkSession) -> None:
    # The parsed plan is checked first, because the analysis opens files (text.`/path`) and evaluates
    # constants.
    nodes = list(_every_node(plan, _PARSED))
    known = {VIEW}
    for node in nodes:
        if _class(node) == "plans.logical.UnresolvedWith":
            known |= {pair._1().lower() for pair in each_of(node.cteRelations())}  # noqa: SLF001 - of a Scala tuple
    for node in nodes:
        match _class(node):
            case "analysis.UnresolvedRelation":
                parts = list(each_of(node.multipartIdentifier()))
                if len(parts) > 1 or parts[0].lower() not in known:
                    raise _reads(".".join(parts))
            case "analysis.UnresolvedTableValuedFunction":
                _expect_built_in(list(each_of(node.name())), _TABLES)
        for expression in _every_expression(node):
            _expect_known(expression, session)


def confine_analyzed(plan: Any) -> None:
    # Only the analyzed plan distinguishes a CTE from a table of the same name.
    for node in _every_node(plan, _ANALYZED):
        if _is_records(node):
            continue
        if _class(node) == "plans.logical.View":
            raise _reads(node.desc().identifier().unquotedString())
        for expression in _every_expression(node):
            name = _class(expression)
            if not name.startswith(_OF_SPARK) or _last(name) in _OF_OTHERS:
                raise _uses(f"the expression {_last(name)}")


def _every_node(plan: Any, known: Collection[str]) -> Iterator[Any]:
    name = _class(plan)
    if name not in known:
        raise _refusal(_last(name), is_leaf=not plan.children().size())
    yield plan
    if not _is_records(plan):
        for child in (*each_of(plan.children()), *each_of(plan.innerChildren())):
            yield from _every_node(child, known)


def _refusal(operator: str, *, is_leaf: bool) -> ConfigException:
    if operator == "ScriptTransformation":
        return ConfigException(f"the query runs system commands (TRANSFORM … USING): {_HOW_TO_ALLOW}")
    if is_leaf or operator in _OTHER_RELATIONS:
        return _reads(_OTHER_RELATIONS.get(operator, operator))
    return _uses(f"Spark's operator {operator}")


def _is_records(node: Any) -> bool:
    # A temporary view hides a table of this name, and this view is created before each analysis.
    return (
        _class(node) == "plans.logical.View"
        and node.isTempView()
        and node.desc().identifier().unquotedString() == VIEW
    )


def _every_expression(node: Any) -> Iterator[Any]:
    below = list(each_of(node.expressions()))
    while below:
        expression = below.pop()
        yield expression
        below += each_of(expression.children())
        if _class(expression) == "analysis.UnresolvedStarExceptOrReplace":
            replacements = expression.replacements()  # ``children`` does not include them
            below += each_of(replacements.get()) if replacements.isDefined() else ()


def _expect_known(expression: Any, session: SparkSession) -> None:
    name = _class(expression)
    if name == "analysis.UnresolvedFunction":
        _expect_function(expression, session)
    elif name == "analysis.UnresolvedGenerator":
        _expect_built_in([expression.name().funcName()], _TABLES)
    elif name.startswith("analysis."):
        if _last(name) not in _UNRESOLVED:
            raise _uses(_OTHER_NAMES.get(_last(name), f"the expression {_last(name)}"))
    elif not name.startswith(_OF_SPARK) or _last(name) in _OF_OTHERS:
        raise _uses(f"the expression {_last(name)}")


def _expect_function(call: Any, session: SparkSession) -> None:
    parts = list(each_of(call.nameParts()))
    name = parts[-1].lower()
    if name in _REFLECTION:
        raise ConfigException(
            f"the query calls Java methods by reflection ({name}), which can read the server's environment "
            f"and files: {_HOW_TO_ALLOW}"
        )
    if name not in _WITH_OPTIONS:
        _expect_built_in(parts, {name} if name in _FUNCTIONS or _group(name, session) in _GROUPS else ())
        return
    _expect_built_in(parts, _WITH_OPTIONS)
    for options in list(each_of(call.arguments()))[_WITH_OPTIONS[name] :]:
        if not _are_harmless(options):
            raise _uses(f"options of {name} that may name a file or an address")


def _expect_built_in(parts: list[str], known: Collection[str]) -> None:
    schema = [part.lower() for part in parts[:-1]]
    if parts[-1].lower() not in known or schema not in ([], ["builtin"], ["system", "builtin"]):
        raise _uses(f"the function {'.'.join(parts)}")


def _group(name: str, session: SparkSession) -> str:
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - no public API
    catalyst = jvm.org.apache.spark.sql.catalyst
    found = catalyst.analysis.FunctionRegistry.builtin().lookupFunction(catalyst.FunctionIdentifier(name))
    return str(found.get().getGroup()) if found.isDefined() else ""


def _are_harmless(options: Any) -> bool:
    if _class(options) != "analysis.UnresolvedFunction":
        return False
    # Only a literal map('key', 'value', …) can be checked.
    keys = list(each_of(options.arguments()))[::2]
    return [part.lower() for part in each_of(options.nameParts())] == ["map"] and all(
        _class(key) == "expressions.Literal" and str(key.value()).lower() in _OPTIONS for key in keys
    )


def _reads(what: str) -> ConfigException:
    return ConfigException(f"the query reads {what}, but may only read '{VIEW}': {_HOW_TO_ALLOW}")


def _uses(what: str) -> ConfigException:
    return ConfigException(
        f"the query uses {what}, which may reach data outside of the query: {_HOW_TO_ALLOW}"
    )


def _class(item: Any) -> str:
    return str(item.getClass().getName()).removeprefix(_CATALYST).removesuffix("$")


def _last(name: str) -> str:
    return name.rpartition(".")[2]
