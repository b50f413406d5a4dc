"""`python -m tools.release`: makes, pushes and verifies a release, or prepares its commit.

    python -m tools.release make --registry registry.example/team --key FILE
    python -m tools.release make --dry-run                            to a registry on loopback
    python -m tools.release make --dry-run --on-kind                  and on kind from there
    python -m tools.release prepare 0.2.0                             version and changelog

What it leaves is in out/release/VERSION/. Exit code 0, or 1 with the reasons on stderr.
"""

import argparse
import base64
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

from image import CONSOLE, FORWARDER, OPERATOR, ROLLUP, Edition, packages
from lab.errors import LabError, say
from lab.image_archive import architecture
from lab.kubernetes.tools import Helm
from lab.process import output_of
from tools.release import files, krew, oci, plan, verify
from tools.release.oci import Layout
from tools.release.plan import Pushed, Tree
from tools.release.registry import SigningKey, Skopeo, local_registry, logins

ROOT = packages.ROOT
OUT = ROOT / "out" / "release"
MACHINES: Mapping[str, tuple[str, ...]] = {
    OPERATOR.repository: ("x86_64", "aarch64"),
    CONSOLE.repository: ("x86_64", "aarch64"),
    FORWARDER.repository: ("x86_64", "aarch64"),
    ROLLUP.repository: (packages.MACHINE,),  # its own Java has to run while it is built
}
TITLES: Mapping[str, str] = {
    OPERATOR.repository: "image of the operator",
    CONSOLE.repository: "image of the console",
    FORWARDER.repository: "image of the forwarders",
    ROLLUP.repository: "image of rollup Jobs",
}
_STARTED = {one.repository: one.further for one in (OPERATOR, CONSOLE, FORWARDER)}
# the chart's values that name another image than the operator's
_SECTIONS = {"rollup": ROLLUP, "console": CONSOLE, "delayQueues": FORWARDER}
_BUILT = "built"  # between build and publish: what is pushed, as OCI layouts
_LIST = "BUILT.sha256"
_PLACEHOLDER = "registry.example"  # names images in a dry run without REGISTRY
_GIT_TIMEOUT_SECONDS = 60.0


@dataclass
class Release:
    """One run: what it makes, where, and how long each part took."""

    version: str
    revision: str
    registry: str
    dry_run: bool
    key: SigningKey
    editions: Sequence[Edition]
    work: Path
    out: Path
    started: float = field(default_factory=time.monotonic)
    layouts: dict[str, Layout] = field(default_factory=dict)
    pushed: list[Pushed] = field(default_factory=list)

    def make(self) -> None:
        """Build all that is released, without a word to a registry. Raises `LabError`."""
        for edition in self.editions:
            self._make_image(edition)
        self._say("images are built")
        self.make_chart(self._helm())
        packages.build_distributions(self.out)
        (self.out / ".gitignore").unlink(missing_ok=True)  # uv's own
        (wheel,) = self.out.glob("*.whl")
        archive = krew.write(self.out, wheel, version=self.version)
        self._say(krew.try_out(archive, version=self.version, work=self._folder("plugin")))
        section = plan.section_of((ROOT / "CHANGELOG.md").read_text(), self.version)
        (self.out / "release-notes.md").write_text(plan.notes(section, self.pushed))
        self._say("chart, manifests and wheel are written")

    def keep(self, folder: Path) -> None:
        """Leave in `folder` what `make` made, with a list of all digests, for `take` to sign."""
        built = folder / _BUILT
        built.mkdir(parents=True)
        for one in self.pushed:
            shutil.move(self.layouts[one.repository].directory, built / self._name(one))
        described = [self.revision, self.registry, [asdict(one) for one in self.pushed]]
        (built / "built.json").write_text(json.dumps(described))
        (folder / _LIST).write_text(files.digests(folder, (built, self.out)))

    def take(self, folder: Path) -> None:
        """Have pushed what `keep` left. Raises `LabError` if it differs, or the commit does."""
        built, listed = folder / _BUILT, folder / _LIST
        if not listed.exists():
            raise LabError(f"{listed} is not there: `make release-build` makes what is published.")
        found = files.digests(folder, (built, self.out))
        if wrong := set(found.splitlines()) ^ set(listed.read_text().splitlines()):
            names = sorted({line.partition("  ")[2] for line in wrong})
            raise LabError(
                f"Not as {listed.name} says, so nothing was signed: {', '.join(names)}. "
                f"`make release-build` makes all of it again."
            )
        revision, registry, pushed = json.loads((built / "built.json").read_text())
        if (revision, registry) != (self.revision, self.registry):
            raise LabError(
                f"What was built is of commit {revision} for {registry}, and this is "
                f"{self.revision} for {self.registry}, so nothing was signed."
            )
        self.pushed = [Pushed(**one) for one in pushed]
        self.layouts = {one.repository: Layout(built / self._name(one)) for one in self.pushed}

    def _name(self, one: Pushed) -> str:
        return one.repository.removeprefix(f"{self.registry}/").replace("/", "-")

    def sign_files(self) -> None:
        """Write checksums of all files, the public key among them, and their signature."""
        (self.out / "signing-key.pub").write_text(self.key.public_pem)
        sums = files.checksums(path for path in self.out.iterdir() if path.is_file())
        (self.out / files.SUMS).write_text(sums)
        signature = base64.b64encode(self.key.sign(sums.encode()))
        (self.out / f"{files.SUMS}.sig").write_bytes(signature + b"\n")

    def push(self, skopeo: Skopeo, local: str) -> None:
        """Push all, each thing after its signatures, and the chart last: it names the images.

        A version that is there with another digest stays as it is, and the release is refused
        before anything is pushed. Raises `LabError`.
        """
        references = {
            one.repository: local + one.repository.removeprefix(self.registry)
            for one in self.pushed
        }
        for one in self.pushed:
            there = skopeo.manifest(f"{references[one.repository]}:{one.tag}")
            digest = there and oci.digest_of(there)
            if digest not in (None, one.digest):
                raise LabError(
                    f"{references[one.repository]}:{one.tag} is {digest} already, and this tree "
                    f"makes {one.digest}. A version never changes, so nothing was pushed: release "
                    f"the next one."
                )
        for one in self.pushed:
            layout, reference = self.layouts[one.repository], references[one.repository]
            platforms = oci.platforms(layout).values()
            for digest in (one.digest, *(str(manifest["digest"]) for manifest in platforms)):
                tag = oci.signature_tag(digest)
                signature = Layout(self.work / f"{one.repository.replace('/', '-')}-{tag}")
                oci.add_signature(signature, digest, repository=one.repository, sign=self.key.sign)
                skopeo.push(signature, f"{reference}:{tag}")
            skopeo.push(layout, f"{reference}:{one.tag}")
        self._say("everything is pushed and signed")

    def verify(self, skopeo: Skopeo, local: str) -> Iterator[str]:
        """Check all as its users find it; a line for each check. Raises `LabError`."""
        helm, options = self._helm(), ["--plain-http"] if self.dry_run else []
        if skopeo.logins:
            options += ["--registry-config", str(skopeo.logins)]
        verifier = verify.Verifier(
            skopeo, self.key.public_pem, self.work / "fetched", self.registry, local
        )
        for one in self.pushed:
            layout, line = verifier.fetch(one, self.layouts[one.repository])
            yield line
            yield verifier.check_signatures(one, layout)
            yield verifier.ask_cosign(one, layout)
            name = one.repository.removeprefix(f"{self.registry}/")
            if name in _STARTED:
                place = self.work / "started" / name
                yield from verify.start(layout, work=place, further=_STARTED[name])
        yield verify.check_files(self.out, public_pem=self.key.public_pem)
        chart = self.pushed[-1]
        yield verify.check_chart(
            helm,
            chart,
            reference=verifier.reference(chart.repository),
            options=options,
            folder=self.out,
        )
        (wheel,) = self.out.glob("*.whl")
        yield verify.check_plugin(self.out)
        yield verify.check_wheel(wheel, version=self.version, work=self._folder("wheel"))

    def install(self, local: str) -> Iterator[str]:
        """Install all on a kind cluster of the lab. Raises `LabError`."""
        from tools.release import on_kind  # developers' packages, which publishing does without

        released = on_kind.Released(self.pushed[0], self.pushed[-1], self.out, local)
        yield from on_kind.installed(released, work=self._folder("on-kind"))

    def table(self) -> str:
        """Every file with its size, for people."""
        rows = [
            f"{path.stat().st_size / 1e6:10.3f} MB  {path.name}"
            for path in sorted(self.out.iterdir())
        ]
        return "\n".join(rows)

    def _make_image(self, edition: Edition) -> None:
        machines = MACHINES[edition.repository]
        images = [
            files.platform_image(edition, machine, revision=self.revision) for machine in machines
        ]
        files.write_bills(self.out, edition, images)
        layout = Layout(self.work / edition.repository)
        annotations = images[0][1].config.labels
        digest = oci.add_image(
            layout, [image for _, image in images], self.version, annotations=annotations
        )
        shown = " and ".join(architecture(machine) for machine in machines)
        self.add(f"{TITLES[edition.repository]}, {shown}", edition.repository, layout, digest)

    def make_chart(self, helm: Helm) -> None:
        """Write the chart and install.yaml with the images that are there by now.

        Raises `LabError`.
        """
        images = {one.repository.rpartition("/")[2]: one for one in self.pushed}
        operator = images[OPERATOR.repository]
        values = files.released_values(
            (files.CHART / "values.yaml").read_text(),
            repository=operator.repository,
            digest=operator.digest,
            others={
                section: images[edition.repository].pinned
                for section, edition in _SECTIONS.items()
                if edition.repository in images
            },
        )
        described = files.released_description(
            (files.CHART / "Chart.yaml").read_text(),
            {name: one.pinned for name, one in images.items()},
        )
        archive = files.write_chart(
            helm,
            self.out,
            work=self._folder("chart"),
            changed={"values.yaml": values, "Chart.yaml": described},
            version=self.version,
        )
        manifest = files.install_manifest(helm, str(archive), version=self.version)
        (self.out / "install.yaml").write_text(manifest)
        layout = Layout(self.work / "chart-layout")
        digest = oci.add_chart(layout, archive, files.chart_description())
        self.add("chart", "charts/tidegate", layout, digest)

    def add(self, title: str, name: str, layout: Layout, digest: str) -> None:
        """Have `layout` pushed as `name` in the registry."""
        repository = f"{self.registry}/{name}"
        self.layouts[repository] = layout
        self.pushed.append(Pushed(title, repository, self.version, digest))

    def _helm(self) -> Helm:
        return Helm(self._folder("helm"))

    def _folder(self, name: str) -> Path:
        folder = self.work / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _say(self, what: str) -> None:
        say("release", f"{what} ({time.monotonic() - self.started:.0f} s)")


def run_make(options: argparse.Namespace) -> int:
    """Make a release, or say why this tree cannot be one."""
    if options.on_kind and not options.dry_run:
        raise LabError("--on-kind needs --dry-run: it installs from the registry on loopback.")
    _refuse_keys_of(os.environ)
    tree = tree_of(ROOT)
    key, problem = (None, None) if options.only == "build" else _key(options)
    refused = plan.refusals(
        tree,
        registry=options.registry,
        key_problem=problem,
        with_rollups=options.rollup,
        today=datetime.now(UTC).date(),
    )
    if refused and not options.dry_run:
        _print_refusals(f"Tidegate {tree.version} is not released, and nothing was built:", refused)
        return 1
    if refused:
        _print_refusals("A release of this tree would be refused; this dry run goes on:", refused)
    registry = options.registry or _PLACEHOLDER
    if wrong := plan.registry_refusals(registry):
        raise LabError(wrong[0])
    out = OUT / tree.version
    if options.only != "publish":
        shutil.rmtree(out, ignore_errors=True)
        shutil.rmtree(OUT / _BUILT, ignore_errors=True)
        (OUT / _LIST).unlink(missing_ok=True)
        out.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="tidegate-release-") as work:
        release = Release(
            tree.version,
            _git("rev-parse", "HEAD").strip(),
            registry,
            options.dry_run,
            key or SigningKey.made(),
            (OPERATOR, CONSOLE, FORWARDER, *((ROLLUP,) if options.rollup else ())),
            Path(work),
            out,
        )
        file_of_logins = logins(os.environ, release.work / "logins")  # before any program runs
        if options.only == "publish":
            release.take(OUT)
        else:
            release.make()
        if options.only == "build":
            release.keep(OUT)
            print(f"{OUT / _LIST} lists what was built; `make release-publish` signs it.")
        else:
            _publish(release, file_of_logins, install=options.on_kind)
    return 0


def _publish(release: Release, file_of_logins: Path | None, *, install: bool) -> None:
    release.sign_files()
    with _where_to_push(release) as local:
        skopeo = Skopeo(
            release.work / "skopeo",
            None if release.dry_run else file_of_logins,
            plain_http=release.dry_run,
        )
        release.push(skopeo, local)
        for line in release.verify(skopeo, local):
            print(f"ok  {line}", flush=True)
        for line in release.install(local) if install else ():
            print(f"ok  {line}", flush=True)
    print(f"\n{release.table()}\n\nin {release.out.relative_to(ROOT)}/")
    took_seconds = time.monotonic() - release.started
    if release.dry_run:
        print(f"Dry run: all of it was checked in {took_seconds:.0f} s, and nothing is published.")
    else:
        print(
            f"Tidegate {release.version} is in {release.registry} ({took_seconds:.0f} s). Put the "
            f"files on the release's page, with release-notes.md as its text."
        )


@contextmanager
def _where_to_push(release: Release) -> Iterator[str]:
    if release.dry_run:
        with local_registry() as address:
            # the path is that of the real one, for which it can stand as a mirror
            yield "/".join([address, *release.registry.split("/")[1:]])
    else:
        yield release.registry


def _key(options: argparse.Namespace) -> tuple[SigningKey | None, str | None]:
    """The key that is named and None, or None and what is wrong with it.

    Raises `LabError` when a dry run is given something that is no key.
    """
    try:
        return SigningKey.read(options.key, options.key_password), None
    except LabError as failure:
        if options.dry_run and options.key:
            raise
        return None, str(failure)


def _refuse_keys_of(environment: Mapping[str, str]) -> None:
    """Every process of the same user can read what make and Python were started with."""
    if given := [name for name in ("SIGNING_KEY", "SIGNING_KEY_PASSWORD") if environment.get(name)]:
        raise LabError(
            f"{' and '.join(given)} in the environment can be read by every program of this user "
            f"while a release is made, so nothing was done. Unset it, and name a file or a pipe: "
            f"SIGNING_KEY_FILE=tidegate.key, and SIGNING_KEY_PASSWORD_FILE for its password."
        )


def tree_of(root: Path) -> Tree:
    """The tree as Git and its files have it. Raises `LabError`."""
    texts = {place: (root / place).read_text() for place in plan.PLACES}
    return Tree(
        version=packages.version(),
        versions=plan.versions(texts),
        changelog=(root / "CHANGELOG.md").read_text(),
        home=str(files.chart_description()["home"]),
        changes=[line[3:] for line in _git("status", "--porcelain").splitlines()],
        tags=_git("tag", "--points-at", "HEAD").split(),
    )


def run_prepare(options: argparse.Namespace) -> int:
    """Set the version everywhere, and give the changelog's section its entries and its day."""
    today = date.fromisoformat(options.day) if options.day else datetime.now(UTC).date()
    texts, old = _texts(_git("ls-files").splitlines()), packages.version()
    changed = plan.prepared(texts, options.version, today=today)
    for path, text in changed.items():
        (ROOT / path).write_text(text)
    print("\n".join(changed) or f"Everything is of version {options.version} already.")
    if changed and (spoken := plan.named_in_sentences(texts, old)):
        print(f"\nSentences that may speak of {old}, for you to read:\n" + "\n".join(spoken))
    print(
        f"\nNow: `make generate` and `make goldens`; read the difference; `make check`; commit; "
        f"`git tag -s v{options.version}`; `make release REGISTRY=...`."
    )
    return 0


def _texts(tracked: Sequence[str]) -> dict[str, str]:
    """What may name the version: not history, and not the lock but for our own entry."""
    kept = (path for path in tracked if not path.startswith(("docs/adr/", "docs/measurements/")))
    texts = {}
    for path in kept:
        try:
            texts[path] = (ROOT / path).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue
    return texts


def _git(*arguments: str) -> str:
    return output_of(
        ["git", *arguments], timeout_seconds=_GIT_TIMEOUT_SECONDS, working_directory=ROOT
    )


def _print_refusals(head: str, refused: Sequence[str]) -> None:
    print("\n".join([head, *(f"- {reason}" for reason in refused)]), file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, or 1 with the reason on stderr."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except LabError as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.release", description="Makes and verifies a release of Tidegate."
    )
    commands = parser.add_subparsers(required=True)
    make = commands.add_parser("make", help="make, push and verify a release")
    make.add_argument("--registry", default="", help="where to: host and folder")
    make.add_argument(
        "--only",
        choices=("build", "publish"),
        help="build what another run publishes, where the key is and nothing is built",
    )
    make.add_argument("--key", default="", help="file or pipe with the signing key as PEM")
    make.add_argument("--key-password", default="", help="file or pipe with its password")
    make.add_argument("--dry-run", action="store_true", help="to a registry on loopback")
    make.add_argument(
        "--no-rollup",
        dest="rollup",
        action="store_false",
        help="without the image of rollup Jobs, for a short dry run",
    )
    make.add_argument(
        "--on-kind",
        action="store_true",
        help="with --dry-run: also install it on a kind cluster, from that registry (root)",
    )
    make.set_defaults(run=run_make)
    prepare = commands.add_parser("prepare", help="set the version and date the changelog")
    prepare.add_argument("version", help="such as 0.2.0")
    prepare.add_argument("--day", default="", help="YYYY-MM-DD, by default today in UTC")
    prepare.set_defaults(run=run_prepare)
    return parser


if __name__ == "__main__":
    sys.exit(main())
