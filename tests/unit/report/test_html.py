"""Elements as text: what is not markup is escaped."""

from cavity.report.html import Markup, el, join, text


def test_what_is_no_markup_is_escaped():
    assert el("b", "<i>", title="\"'<&>") == '<b title="&quot;&#x27;&lt;&amp;&gt;">&lt;i&gt;</b>'
    assert el("b", Markup("<i>")) == "<b><i></b>"
    assert join(["<", None, el("br")]) == "&lt;<br>"


def test_what_no_file_can_hold_is_shown_as_a_sign():
    text("\ud800\x00\x1b\u2028").encode()
    assert text("a\ud800\x00b") == "a\ufffd\ufffdb"
    assert text("a\n\t b") == "a b"


def test_attributes_of_none_and_false_are_left_out():
    assert el("input", hidden=True, id=None, checked=False, data_x=1.5) == '<input hidden data-x="1.5">'
