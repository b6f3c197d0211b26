"""Frames: commands to bytes and back, in both header encodings. No I/O, no clock; nothing here knows what a code means.

    4 bytes    i32 big-endian: bytes that follow
    4 bytes    the encoding (0 JSON, 1 binary) in the top byte, the header's length in the lower 24 bits
    header     JSON in UTF-8, or the binary form below
    body       whatever is left

The binary header, big-endian: i16 code, u8 language, i16 version, i32 opaque, i32 flag, i32 length and remark,
i32 length of all ext fields, then for each an i16 length and its key, an i32 length and its value, all in UTF-8.

Peers differ in what they emit, so reading is tolerant where no meaning is lost: JSON keys may be missing or unknown,
ext values may be numbers or booleans, languages may be new. Anything else is a ``FrameError``, after which the stream
has no boundaries any more and must be closed. Writing is strict: ext values are strings, and an answer always carries
``extFields``, because the C++ client reads it unasked.

Source: ``RemotingCommand``, ``RocketMQSerializable`` and ``NettyDecoder`` of Apache RocketMQ.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import attrs
import orjson

from remoting.codes import Language
from remoting.command import RESPONSE, Command, Encoding
from remoting.errors import FrameError, NotEncodable
from remoting.fields import decimal, shown

FRAME_BYTES_MAX: Final = 16 << 20
"""Largest frame, its length field included, that Java peers take by default (``NettyDecoder``)."""

_LENGTHS: Final = struct.Struct(">ii")
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
_INTS: Final = struct.Struct(">iiii")
_FIXED: Final = struct.Struct(">hBhii")
_LANGUAGES: Final = {language.name: language.value for language in Language}
_NAMES: Final = tuple(language.name for language in Language)
_LENGTH_MASK: Final = 0xFFFFFF
_JSON: Final = Encoding.JSON  # looked up for each frame: a global is faster than a member of an enum
_BINARY: Final = Encoding.ROCKETMQ
_OTHER: Final = int(Language.OTHER)


def _positive(_: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value <= 0:
        raise ValueError(f"{attribute.name} is {value}; it must be positive")


@attrs.frozen
class FrameLimits:
    """Limits of what a reader takes from a peer. A ``ValueError`` says which limit makes no sense."""

    frame_bytes_max: int = attrs.field(default=FRAME_BYTES_MAX, validator=_positive)
    """Bytes of a whole frame, its length field included."""
    header_bytes_max: int = attrs.field(default=1 << 20, validator=_positive)
    """Message properties travel in the header, so kilobytes are common; Java peers know no limit here."""
    ext_count_max: int = attrs.field(default=1_024, validator=_positive)
    """Ext fields of one header."""


_LIMITS: Final = FrameLimits()


# --- writing -------------------------------------------------------------------------------------------------


def encode(command: Command, frame_bytes_max: int = FRAME_BYTES_MAX) -> bytes:
    """The frame's bytes. Raises ``NotEncodable`` when it would be one that a peer closes the connection for."""
    if command.encoding is _JSON:
        header, kind = _json_header(command), 0
    else:
        header, kind = _binary_header(command), 1 << 24
    body = command.body
    size = len(header)
    total = 4 + size + len(body)
    if size > _LENGTH_MASK or total > frame_bytes_max - 4:
        raise NotEncodable(f"code {command.code} makes a frame of {total + 4} bytes; peers take {frame_bytes_max}")
    return _LENGTHS.pack(total, kind | size) + header + body


def _json_header(command: Command) -> bytes:
    language = command.language
    fields: dict[str, Any] = {"code": command.code}
    if command.ext or command.flag & RESPONSE:
        fields["extFields"] = command.ext
    fields["flag"] = command.flag
    fields["language"] = _NAMES[language] if 0 <= language < len(_NAMES) else "OTHER"
    fields["opaque"] = command.opaque
    if command.remark is not None:
        fields["remark"] = command.remark
    fields["serializeTypeCurrentRPC"] = "JSON"
    fields["version"] = command.version
    try:
        return orjson.dumps(fields)
    except TypeError as error:  # the text has lone surrogates
        raise NotEncodable(f"the header of code {command.code} cannot be JSON: {error}") from None


def _binary_header(command: Command) -> bytes:
    try:
        remark = (command.remark or "").encode()
        entries: list[bytes] = []
        for key, value in command.ext.items():
            name, text = key.encode(), value.encode()
            entries += (_SHORT.pack(len(name)), name, _INT.pack(len(text)), text)
        ext = b"".join(entries)
        return b"".join((
            _FIXED.pack(command.code, command.language, command.version, command.opaque, command.flag),
            _INT.pack(len(remark)), remark, _INT.pack(len(ext)), ext,
        ))
    except UnicodeEncodeError as error:
        raise NotEncodable(f"the header of code {command.code} cannot be UTF-8: {error}") from None
    except struct.error:
        raise NotEncodable(_misfit(command)) from None


def _misfit(command: Command) -> str:
    for name, value in (("code", command.code), ("version", command.version)):
        if not -(2**15) <= value < 2**15:
            return f"{name} {value} does not fit the 16 bits that the binary header has for it; use Encoding.JSON"
    return f"code {command.code}: a number or the name of an ext field is too large for the binary header"


# --- reading -------------------------------------------------------------------------------------------------


class FrameReader:
    """Takes bytes as they come, in any pieces; gives the commands that are whole.

    After a ``FrameError`` every further ``feed`` raises it again: nobody can tell where the next frame would begin.
    Memory: what one unfinished frame has brought so far, at most ``limits.frame_bytes_max``, and the last ``data``.
    """

    def __init__(self, limits: FrameLimits = _LIMITS) -> None:
        self._limits = limits
        self._data = b""
        """Bytes that are being cut into commands, from ``_at`` on."""
        self._at = 0
        self._partial = bytearray()
        """The beginning of a frame that is not whole; in use only while ``_data`` is used up."""
        self._wanted = 8
        """Length of ``_partial`` at which more can be said."""
        self._error: FrameError | None = None

    @property
    def unfinished_bytes(self) -> int:
        """Bytes held of frames that were not given yet: 0 between frames."""
        return len(self._data) - self._at + len(self._partial)

    def feed(self, data: bytes | bytearray) -> Iterator[Command]:
        """The commands that ``data`` completes, decoded one by one as they are asked for.

        Raises ``FrameError`` in its place among them: commands before the damage are given first.
        Commands that were not asked for come with the next call.
        """
        if self._error is not None:
            raise self._error
        if type(data) is not bytes:
            data = bytes(data)
        if self._at < len(self._data):
            data = self._data[self._at :] + data
        elif self._partial:
            self._partial += data
            if len(self._partial) < self._wanted:
                return iter(())
            data = bytes(self._partial)
            self._partial.clear()
        self._data, self._at = data, 0
        return self._commands()

    def _commands(self) -> Iterator[Command]:
        data, at, limits = self._data, self._at, self._limits
        size, unpack = len(data), _LENGTHS.unpack_from
        while size - at >= 8:
            total, kind = unpack(data, at)
            length = kind & _LENGTH_MASK
            if not 4 <= total <= limits.frame_bytes_max - 4 or length > total - 4 or length > limits.header_bytes_max \
                    or kind >> 24 not in (0, 1):
                raise self._broken(_refusal(total, kind, limits))
            end = at + 4 + total
            if end > size:
                break
            body = at + 8 + length
            try:
                command = (_from_binary if kind >> 24 else _from_json)(data[at + 8 : body], data[body:end], limits)
            except FrameError as error:
                raise self._broken(error) from None
            self._at = at = end
            yield command
            if self._data is not data:  # more was fed, or another iterator ran, before this one ended
                return
            at = self._at
        self._wanted = 4 + unpack(data, at)[0] if size - at >= 8 else 8
        self._partial += data[at:]
        self._data, self._at = b"", 0

    def _broken(self, error: FrameError) -> FrameError:
        self._error = error
        self._data, self._at = b"", 0
        return error


def _refusal(total: int, kind: int, limits: FrameLimits) -> FrameError:
    length, encoding = kind & _LENGTH_MASK, kind >> 24 & 0xFF
    if total < 4:
        return FrameError(f"frame length {total}: at least 4 are needed")
    if total > limits.frame_bytes_max - 4:
        return FrameError(f"frame of {total + 4} bytes; {limits.frame_bytes_max} are allowed")
    if encoding > 1:
        return FrameError(f"header encoding {encoding}; only 0 (JSON) and 1 (binary) are known")
    if length > total - 4:
        return FrameError(f"header of {length} bytes in a frame that has {total - 4} left")
    return FrameError(f"header of {length} bytes; {limits.header_bytes_max} are allowed")


def _from_json(header: bytes, body: bytes, limits: FrameLimits) -> Command:
    try:
        fields = orjson.loads(header)
    except orjson.JSONDecodeError as error:
        raise FrameError(f"header is no JSON: {error}") from None
    if type(fields) is not dict:
        raise FrameError("header is no JSON object")
    get = fields.get
    try:
        code, flag, opaque, version = _INTS.unpack(
            _INTS.pack(get("code", 0), get("flag", 0), get("opaque", 0), get("version", 0))
        )
    except struct.error:
        code, flag, opaque, version = (_number(fields, name) for name in ("code", "flag", "opaque", "version"))
    ext = get("extFields")
    if ext is None:
        ext = {}
    else:
        try:
            "".join(ext.values())
        except (TypeError, AttributeError):
            ext = _as_strings(ext)
        if len(ext) > limits.ext_count_max:
            raise FrameError(f"header with {len(ext)} ext fields; {limits.ext_count_max} are allowed")
    remark = get("remark")
    if remark is not None and type(remark) is not str:
        remark = _as_string("remark", remark)
    name = get("language", "JAVA")
    language = _LANGUAGES.get(name, _OTHER) if type(name) is str else _OTHER
    return Command(code, opaque, flag, ext, body, remark, language, version, _JSON)


def _number(fields: dict[str, Any], name: str) -> int:
    """A number that is not plainly one: null is 0, digits in quotes count, as they do in Java peers."""
    value = fields.get(name, 0)
    if value is None:
        return 0
    number = decimal(value) if type(value) is str else value
    if not isinstance(number, int) or not -(2**31) <= number < 2**31:
        raise FrameError(f"header: {name} is {shown(value)}; a number of 32 bits is needed")
    return int(number)


def _as_strings(ext: Any) -> dict[str, str]:
    if type(ext) is not dict:
        raise FrameError(f"header: extFields is {shown(ext)}; an object is needed")
    return {key: _as_string(key, value) for key, value in ext.items() if value is not None}


def _as_string(name: str, value: Any) -> str:
    if type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) in (int, float):
        return str(value)
    raise FrameError(f"header: {shown(name)} is {shown(value)}; a string, a number or a boolean is needed")


def _from_binary(header: bytes, body: bytes, limits: FrameLimits) -> Command:
    try:
        code, language, version, opaque, flag = _FIXED.unpack_from(header)
        at = _FIXED.size
        end = at + 4 + _INT.unpack_from(header, at)[0]
        remark = _text(header, at + 4, end) or None
        (ext_bytes,) = _INT.unpack_from(header, end)
        if end + 4 + ext_bytes != len(header):
            raise FrameError(f"header: ext fields of {ext_bytes} bytes where {len(header) - end - 4} are left")
        ext = _binary_ext(header, end + 4, limits)
    except struct.error:
        raise FrameError(f"header of {len(header)} bytes ends in the middle of a field") from None
    except UnicodeDecodeError as error:
        raise FrameError(f"header is not UTF-8: {error.reason} in a field") from None
    return Command(code, opaque, flag, ext, body, remark, language, version, _BINARY)


def _binary_ext(header: bytes, at: int, limits: FrameLimits) -> dict[str, str]:
    ext: dict[str, str] = {}
    size, short, long, count = len(header), _SHORT.unpack_from, _INT.unpack_from, 0
    while at < size:
        (key_bytes,) = short(header, at)
        at += 2
        value_at = at + key_bytes + 4
        (value_bytes,) = long(header, value_at - 4)
        end = value_at + value_bytes
        if key_bytes < 0 or value_bytes < 0 or end > size:
            raise FrameError(f"header: an ext field of {key_bytes} and {value_bytes} bytes at {at - 2} of {size}")
        ext[header[at : value_at - 4].decode()] = header[value_at:end].decode()
        at = end
        count += 1
        if count > limits.ext_count_max:
            raise FrameError(f"header with more than {limits.ext_count_max} ext fields")
    return ext


def _text(header: bytes, start: int, end: int) -> str:
    if not start <= end <= len(header):
        raise FrameError(f"header: a field of {end - start} bytes at {start} of {len(header)}")
    return header[start:end].decode()
