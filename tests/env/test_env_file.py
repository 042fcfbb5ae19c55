"""The file .env as editors of several systems write it: read rightly, or refused in one line."""

import codecs
import os

import pytest

from drv_env.env_file import read_env_file
from drv_env.errors import SettingError
from drv_env.secrets import Keys
from trainers.cli import main
from trainers.commands.doctor import examine

TEXT = "# Schlüssel 鍵\nSERPER_KEY_ID=abcdef123456\nSUMMARY_MODEL_NAME='Größe $HOME'\n"
RIGHT = {"SERPER_KEY_ID": "abcdef123456", "SUMMARY_MODEL_NAME": "Größe $HOME"}


@pytest.mark.parametrize(
    "content",
    [
        TEXT.encode(),
        codecs.BOM_UTF8 + TEXT.encode(),
        codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le"),
        codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"),
        codecs.BOM_UTF32_LE + TEXT.encode("utf-32-le"),
        codecs.BOM_UTF32_BE + TEXT.encode("utf-32-be"),
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-16-be"),
        TEXT.replace("\n", "\r\n").encode("utf-16"),
    ],
)
def test_every_encoding_of_unicode_is_read(content, tmp_path):
    file = tmp_path / ".env"
    file.write_bytes(content)
    assert dict(read_env_file(file)) == RIGHT


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            "A=1\n# Schlüssel\nKEY=abcdef123456".encode("latin-1"),
            "no UTF-8 text (byte 0xfc in line 2",
        ),
        ("KEY=пароль".encode("cp1251"), "no UTF-8 text (byte 0xef in line 1"),
        (codecs.BOM_UTF16_LE + "KEY=abcdef123456".encode("utf-16-le")[:-1], "no UTF-16 text"),
        (codecs.BOM_UTF16_LE + b"\x00\xd8KE", "no UTF-16 text"),
        (b"A=1\nKEY=abcdef\x00123456\n", "a zero byte in line 2"),
        (b"\x00" * 9, "a zero byte in line 1"),
    ],
)
def test_what_is_no_unicode_is_refused_in_one_line_without_a_value(
    content, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_bytes(content)
    with pytest.raises(SettingError) as caught:
        read_env_file(".env")
    assert str(caught.value).startswith(".env can't be read: it ")
    assert said in str(caught.value)
    assert "save it as UTF-8" in str(caught.value)
    assert "abcdef" not in str(caught.value)
    # and so from whatever reads keys: the environment's own reader, a server's key, the doctor
    with pytest.raises(SettingError, match=r"^\.env can't be read"):
        Keys.from_env({})
    asked = ["ask", "who?", "--model", "served", "--base-url", "http://127.0.0.1:9/v1"]
    assert main([*asked, "--world", "3"]) == 1
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert line.startswith("drv: .env can't be read: it ")
    with pytest.raises(SystemExit):
        main(["doctor"])
    assert [each.subject for each in examine() if each.state == "broken"] == [".env"]


def test_a_folder_of_the_name_or_nothing_at_all_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_env_file(".env") == {}
    (tmp_path / ".env").mkdir()  # a virtual environment, say
    assert read_env_file(".env") == {}
    found = {each.subject: each for each in examine()}
    assert found[".env"].state == "missing"
    assert "folder" in found[".env"].detail


def test_a_file_that_the_system_refuses_is_named_once(tmp_path):
    loop = tmp_path / ".env"
    os.symlink(loop, loop)
    with pytest.raises(SettingError) as caught:
        read_env_file(loop)
    assert str(caught.value) == f"{loop} can't be read: Too many levels of symbolic links"


def test_the_doctor_says_how_it_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SERPER_KEY_ID", raising=False)
    (tmp_path / ".env").write_bytes(TEXT.encode("utf-16"))
    found = {each.subject: each for each in examine()}
    assert (found[".env"].state, found[".env"].detail) == ("ok", "2 names, UTF-16")
    assert found["SERPER_KEY_ID"].state == "ok"
