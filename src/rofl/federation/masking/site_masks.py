"""The site's side of secure aggregation: mask sums, and reveal shares of seeds once for each sum of a run."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import RecordDict

from rofl.core.serialization import deserialize, parse_json, serialize
from rofl.data import atomic
from rofl.data.regular_file import read_regular
from rofl.errors import UserError
from rofl.federation.credentials import SiteCredentials, load_private_key
from rofl.federation.masking.mask_key import MaskKey
from rofl.federation.masking.mask_memory import MaskMemory
from rofl.federation.masking.mask_messages import MaskedSums, SumsForm, get_shares, put_shares, to_vector
from rofl.federation.masking.peers import MaskSession, Peer, check_session, sign_key
from rofl.federation.masking.seeds import (
    add_mask,
    commit_seed,
    majority,
    mark_share,
    pack_shares,
    split_seeds,
    unpack_shares,
)

AT_END = ("noise", "sure", "scores", "report")  # sums after the last round


class SiteMasks:
    """A site's key and memory for masks, stored in a folder so that they survive a restart.

    Args:
        client: The site's number.
        folder: The folder; None to keep them in memory only, for previews and tests.
        credentials: The site's credentials; None on one machine, where keys are not certified.
    """

    def __init__(self, client: int, folder: Path | None = None, credentials: SiteCredentials | None = None) -> None:
        self.client, self._folder, self._ca = client, folder, credentials.ca if credentials else None
        self._key = MaskKey.load_or_create(folder / "key") if folder else MaskKey.create()
        self.signature = b""
        if credentials is not None:
            self.signature = sign_key(self.public, load_private_key(credentials.key, load_ssh_private_key))
        self._reply: MaskedSums | None = None
        self._memory = self._load()

    @property
    def public(self) -> bytes:
        """The site's public key for masks."""
        return self._key.public

    @property
    def noise_key(self) -> bytes:
        """The secret from which the site's noise for differential privacy is derived; a restart does not change it."""
        return self._key.noise_key()

    @property
    def in_use(self) -> bool:
        """Whether a masked message was made in this run."""
        return bool(self._memory.used)

    def check(self, session: MaskSession, purpose: str) -> None:
        """Refuse an invalid sum before anything is computed for it.

        Raises:
            UserError: If the session is invalid, or the sum was answered for another question or is too old.
        """
        check_session(session, self.client, self.public, self._ca)
        self._memory.check_purpose(purpose)
        self._memory.check_question(purpose, session.asked)

    def mask(self, content: RecordDict, session: MaskSession, purpose: str) -> RecordDict:
        """Mask a message of sums, and add shares of the seeds of the masks for all sites.

        Only one message leaves in a session. A repeated request for the newest session gets the same message again.

        Args:
            content: A message of sums in fixed point.
            session: The sites whose sums are added.
            purpose: The purpose of the sum, such as "train 7".

        Raises:
            UserError: If an older session is used again, the session is invalid, or a sum for the same purpose and
                another question was already unmasked.
            ValueError: If the sums cannot be masked.
        """
        if self._reply is not None and self._memory.newest == session.name.hex():
            return self._reply.encode()
        if session.name.hex() in self._memory.used:
            raise UserError("The coordinator uses the masks of a sum again.")
        self.check(session, purpose)
        form, vector = to_vector(content)
        context = session.context(purpose)
        seeds = [self._seed(peer, context) for peer in session.peers]
        for client, seed in zip(session.clients, seeds, strict=True):
            add_mask(vector, seed, 1 if self.client <= client else -1)
        shares = split_seeds(seeds, len(seeds))  # by receiving site
        encrypted = [
            self._key.encrypt(peer.key, context, pack_shares(each))
            for peer, each in zip(session.peers, shares, strict=True)
        ]
        marks = tuple(pack_shares(map(mark_share, each)) for each in shares)
        self._reply = MaskedSums(form, vector, tuple(map(commit_seed, seeds)), tuple(encrypted), marks)
        self._memory.begin(session, purpose)
        self._save_reply()  # first, so that the memory never lists a message that is not on disk
        self._save_memory()  # before it leaves
        return self._reply.encode()

    def reveal(self, content: RecordDict, fewest: int = 2, same_sites: bool = False) -> RecordDict:
        """Return the shares that unmask a sum.

        These are shares of the own masks of sites whose sums arrived, and of the masks that they share with missing
        sites. An empty text stands for shares that this site cannot decrypt, so that the coordinator can identify
        their sender.

        Args:
            content: The coordinator's request: the sites whose sums arrived, and the shares that they encrypted for
                this site.
            fewest: The smallest number of sites in a sum, in addition to the majority of the session's sites.
            same_sites: Whether all sums of a run must be over the same sites; otherwise only the tables at the end.

        Raises:
            UserError: If this site is not in the sum, the sum has too few sites, or a comparable sum was already
                unmasked: the difference of the two would reveal one site's part.
        """
        encrypted, session, arrived = get_shares(content)
        keys = self._memory.keys.get(session.hex())
        if keys is None:
            raise UserError("The coordinator asks for masks of a sum that this site took no part in.")
        if arrived != sorted(set(arrived) & keys.keys()) or len(arrived) < max(majority(len(keys)), fewest):
            raise UserError("The coordinator asks for masks of a sum of too few sites.")
        if self.client not in arrived:
            raise UserError("The coordinator asks for masks of a sum that this site is left out of.")
        memory, name = self._memory, session.hex()
        purpose, context = memory.used[name], bytes.fromhex(memory.contexts[name])
        memory.check_question(purpose, memory.questions[name])
        memory.check_sites(purpose, arrived, same_sites)
        opened = {client: self._open(encrypted.get(client, b""), client, context, keys) for client in arrived}
        if purpose not in memory.revealed:
            memory.reveal(name, arrived)
            self._save_memory()  # before it leaves
        places = sorted(keys)
        wanted = {client: [client, *(other for other in places if other not in arrived)] for client in arrived}
        found = {
            client: b"" if shares is None else pack_shares(shares[places.index(of)] for of in wanted[client])
            for client, shares in opened.items()
        }
        return put_shares(found, session)

    def forget(self) -> None:
        """Delete key and memory after the run, so that recorded traffic can never be unmasked."""
        if self._folder is not None:
            for name in ("key", "memory.json", "reply.safetensors"):
                (self._folder / name).unlink(missing_ok=True)

    def _seed(self, peer: Peer, context: bytes) -> bytes:
        return self._key.own_seed(context) if peer.client == self.client else self._key.pair_seed(peer.key, context)

    def _open(self, text: bytes, sender: int, context: bytes, keys: Mapping[int, str]) -> list[bytes] | None:
        """Decrypt the shares that a site sent to this one; None if they cannot be decrypted."""
        try:
            return unpack_shares(self._key.decrypt(bytes.fromhex(keys[sender]), context, text), len(keys))
        except (InvalidTag, ValueError):
            return None

    def _load(self) -> MaskMemory:
        if self._folder is None or not (self._folder / "memory.json").is_file():
            return MaskMemory()
        try:
            facts = parse_json(read_regular(self._folder / "memory.json", follow=False).decode())
            facts["keys"] = {
                name: {int(client): key for client, key in keys.items()} for name, keys in facts["keys"].items()
            }
            memory = MaskMemory(**facts)
            groups, reply = deserialize(read_regular(self._folder / "reply.safetensors", follow=False))
            memory.check()
            if memory.newest == reply["session"]:
                form = SumsForm(reply["group names"], reply["tensors"], tuple(reply["numbers"]))
                lists = [tuple(map(bytes.fromhex, reply[name])) for name in ("commitments", "shares", "marks")]
                self._reply = MaskedSums(form, groups["masked"]["vector"].numpy(), *lists)
            return memory
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise UserError(f"A file in {self._folder} is damaged ({error}).", "another --out") from error

    def _save_reply(self) -> None:
        if self._folder is None or self._reply is None:
            return
        form = self._reply.form
        facts = {"group names": form.groups, "tensors": form.tensors, "numbers": form.numbers}
        shares = {"commitments": self._reply.commitments, "shares": self._reply.shares, "marks": self._reply.marks}
        facts |= {name: [each.hex() for each in texts] for name, texts in shares.items()}
        vector = {"vector": torch.from_numpy(self._reply.vector)}
        raw = serialize({"masked": vector}, {"session": self._memory.newest, **facts})
        atomic.atomic_write(self._folder / "reply.safetensors", raw, 0o600)

    def _save_memory(self) -> None:
        if self._folder is not None:
            atomic.atomic_write(self._folder / "memory.json", json.dumps(vars(self._memory)), 0o600)
