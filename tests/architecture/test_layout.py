"""The tree has the layout that design and style promise: names, thin Spark applications, one plugin file."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from eventbridge.errors import EXTRAS
from eventbridge.version import DISTRIBUTION, __version__, wheel_file

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "include" / "eventbridge"
BANNED_NAMES = {"utils", "util", "common", "helpers", "helper", "base", "manager", "misc"}


def tracked(pattern: str) -> list[Path]:
    """Return the files git tracks, or would, that match a glob."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", pattern]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return [ROOT / name for name in listed if name and (ROOT / name).is_file()]


def test_no_file_has_a_name_that_says_nothing() -> None:
    """No module is called utils, common, manager or the like."""
    found = [str(path) for path in tracked("*.py") if path.stem in BANNED_NAMES or path.parent.name in BANNED_NAMES]

    assert found == []


def test_every_dag_file_is_in_the_package_too() -> None:
    """`dags/eventbridge_x.py` wires what `eventbridge.airflow.dags.x` makes, so that an installed package has the
    same DAGs.
    """
    in_checkout = {path.stem for path in tracked("dags/*.py")} - {"eventbridge_rule_errors"}
    in_package = {f"eventbridge_{path.stem}" for path in tracked("include/eventbridge/airflow/dags/[a-z]*.py")}

    assert in_checkout == in_package


def test_spark_apps_are_thin() -> None:
    """A Spark application has at most 60 lines."""
    long = [str(path) for path in tracked("spark_apps/*.py") if len(path.read_text().splitlines()) > 60]

    assert long == []


def test_plugins_folder_holds_at_most_one_python_file() -> None:
    """Airflow executes every .py below plugins/ as a top-level module, so there is one, which shadows nothing."""
    files = tracked("plugins/*.py")

    assert len(files) <= 1
    assert all(path.stem == "eventbridge_plugin" for path in files)


def test_every_public_thing_has_a_docstring() -> None:
    """Every module, public class and public function of the package says what it does."""
    missing = []
    for path in tracked("include/eventbridge/*.py"):
        tree = ast.parse(path.read_text())
        if tree.body and ast.get_docstring(tree) is None:
            missing.append(str(path.relative_to(ROOT)))
        missing += [f"{path.relative_to(ROOT)}:{node.lineno} {node.name}" for node in _public(tree)]

    assert missing == []


def _public(tree: ast.Module) -> list[ast.ClassDef | ast.FunctionDef]:
    found: list[ast.ClassDef | ast.FunctionDef] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            if ast.get_docstring(node) is None:
                found.append(node)
            if isinstance(node, ast.ClassDef):
                found += [
                    child
                    for child in node.body
                    if isinstance(child, ast.FunctionDef)
                    and not child.name.startswith("_")
                    and ast.get_docstring(child) is None
                ]
    return found


def test_every_test_says_what_is_true() -> None:
    """Every test function has a docstring of at least one sentence."""
    missing = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in tracked("tests/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and ast.get_docstring(node) is None
    ]

    assert missing == []


def test_no_machine_path_or_registry_is_committed() -> None:
    """No tracked text names a home folder, a checkout's place or a package registry's host."""
    suspicious = re.compile(r"/(root|home|work)/[a-z]|files\.pythonhosted|repo\.maven|index-url", re.I)
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in tracked("*")
        if path.suffix in {".py", ".md", ".yaml", ".yml", ".toml", ".txt", ".sh", ""} and path != Path(__file__)
        for match in [suspicious.search(path.read_text(errors="replace"))]
        if match
    ]

    assert found == []


def test_the_error_tree_is_one_tree() -> None:
    """Every error class of the product derives from EventBridgeError and stands in the drawn tree."""
    from eventbridge import errors

    classes = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    drawn = errors.__doc__ or ""

    assert all(issubclass(each, errors.EventBridgeError) for each in classes)
    assert [each.__name__ for each in classes if each.__name__ not in drawn] == []


def test_great_expectations_is_imported_only_where_a_suite_runs() -> None:
    """Its import takes many CPU-seconds: one module names it, and imports it inside functions alone."""
    suite = PACKAGE / "quality" / "suite.py"
    naming = [path for path in tracked("*.py") if path.is_relative_to(PACKAGE) and _imports(path, "great_expectations")]
    at_once = [node for node in ast.parse(suite.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]

    assert naming == [suite]
    assert not [node for node in at_once if "great_expectations" in ast.unparse(node) or "pandas" in ast.unparse(node)]


def _imports(path: Path, package: str) -> bool:
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    return any(re.search(rf"^(import|from) {package}\b", ast.unparse(node)) for node in nodes)


def test_the_core_dependencies_are_what_the_core_imports() -> None:
    """A dependency without an extra is imported by the package; what an extra installs is not one of them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {_distribution(each) for each in project["dependencies"]}
    distributions = packages_distributions()
    imported = {
        _distribution(name)
        for path in tracked("include/eventbridge/*.py")
        for package in _imported_packages(path) - EXTRAS.keys()
        for name in distributions.get(package, [])
    }

    assert declared - imported == set()
    assert declared & {_distribution(name) for package in EXTRAS for name in distributions.get(package, [])} == set()


def test_only_clients_of_http_apis_import_httpx() -> None:
    """httpx speaks to Airflow's REST API and to our own, so an installation without both extras lacks it."""
    assert {path for path in tracked("include/eventbridge/*.py") if _imports(path, "httpx")} == {
        PACKAGE / "airflow" / "airflow_api.py",
        PACKAGE / "client.py",
    }


def _imported_packages(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module.partition(".")[0])
    return found


def _distribution(requirement: str) -> str:
    """Return the normal form of the name with which a requirement begins."""
    name = re.match(r"[\w.-]+", requirement)
    assert name is not None
    return re.sub(r"[-_.]+", "-", name.group()).lower()


def test_no_text_installs_another_projects_package() -> None:
    """`eventbridge` on package indexes is not this project, and no tracked text installs that name."""
    foreign = re.compile(
        r"\beventbridge\[[a-z]|\bpip install [^\n`]*?['\" ]eventbridge(?=[\s'\"`=<>~@]|$)", re.MULTILINE
    )
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in tracked("*")
        if path.suffix in {".py", ".md", ".yaml", ".yml", ".toml", ".txt", ".html", ".sh", ""}
        and path != Path(__file__)
        for match in foreign.finditer(path.read_text(errors="replace"))
    ]

    assert found == []


def test_every_wheel_that_a_text_names_is_the_one_that_is_built() -> None:
    """pyproject.toml and the version module agree on name and version, and so does each wheel file that is named."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [
        (str(path.relative_to(ROOT)), match)
        for path in [*tracked("*.md"), *tracked("*.py"), *tracked("Makefile"), *tracked("Dockerfile")]
        if path != Path(__file__)
        for match in re.findall(r"\beventbridge\w*-\d[\w.]*-py3-none-any\.whl", path.read_text())
    ]

    assert (project["name"], project["version"]) == (DISTRIBUTION, __version__)
    assert [each for each in named if each[0] == "docs/howto/install.md"] != []
    assert [each for each in named if each[1] != wheel_file()] == []
