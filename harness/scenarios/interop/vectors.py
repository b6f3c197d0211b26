"""Expressions, by what RocketMQ 5.5.0 says of them for ``PROPERTIES``.

They are texts: it compiles none, and asks no broker.
"""

from __future__ import annotations

PROPERTIES = {"a": "5", "s": "abc", "b": "true", "f": "1.5", "big": "12345678901", "sp": " 5", "e": "", "TAGS": "T1"}

TRUE = """
a > 3|a = 5|a = '5'|a = 5.0|a > 4.9|x IS NULL|a IS NOT NULL|x > 3 OR a = 5|b = TRUE|b = true|a > 0|a IN ('5','6')
a NOT IN ('7')|a BETWEEN 1 AND 9|a NOT BETWEEN 1 AND 3|a between -1 and 9|a > 3 garbage|a > 3 )|TRUE|1 = 1|+a = 5
a > -1|s = 'abc'|s CONTAINS 'b'|NOT (x CONTAINS 'b')|s STARTSWITH 'a'|s ENDSWITH 'c'|f = 1.5|big = 12345678901
big = 12345678901L|a = 5L|TAGS = 'T1'|x = x|a=5/*c*/|a = 5 -- c|e = ''|1 < a|(a > 3) = TRUE|a < 1e1|a > .5
a >= 5|a <= 5|5 >= a|a > -- c\\n 3|a = --5|(a) IN ('5')|-a = x AND TRUE|5 <> TRUE|1 < 1.5|a = 5 AND (x = 1 OR b = TRUE)
a BETWEEN 5 AND 5|x IS NULL IS NOT NULL|'abc' CONTAINS 'b'|'tRuE' = TRUE|9007199254740993 = 9007199254740992.0
"""
FALSE = """
a <> 5|x IS NOT NULL|x > 3 AND a = 4|b|a|b = FALSE|FALSE|a = -5|s LIKE 'a%'|x CONTAINS 'b'|x NOT CONTAINS 'b'
s NOT ENDSWITH 'c'|s CONTAINS ''|f > a|a = x|a-b = 1|a + 1 = 6|NOT a = 5|NOT (a = 5)|e IS NULL|a > 1E1|a > 5.
s = 'it''s'|a > 5|a < 5|a = 05|a = 05 OR a = 5|a NOT STARTSWITH '5'|s NOT CONTAINS ''|5 CONTAINS '5'|5 = TRUE
5 NOT CONTAINS '5'|1 = TRUE|f > f|f < f
a NOT BETWEEN 9 AND 1 AND a = 4|a BETWEEN 6 AND 9|a BETWEEN 1 AND 4|1.5 < 1|e5 IS NOT NULL|x = x AND FALSE
a = 4 OR a = 6|'abcd' = TRUE
"""
UNKNOWN = """
x > 3|x = 5|x <> 5|NOT (x > 3)|x NOT IN ('7')|x IN ('7')|NULL|-a = -5|A = 5|x = a|$a = 1|-a > 3|x|NOT x|5 > x|x < s
x > 3 AND a = 5|x > 3 OR a = 4|x BETWEEN 1 AND 9|x > -(s > 1)|-a > -(s > 1)
"""
UNREADABLE = """
s < 5|s = 5|s <> 5|s > a|f < 2|big > 5|sp = 5|a = 5 AND NOT s = 'x' AND s < 1|TRUE = b|-(s > a) = 1|a = 5 AND s > 1
(a = 5) = s|s BETWEEN 1 AND 2|-s = 5 OR s < 5|5 > s|e = 5|sp > 5l|a > -(s > 1)|-(s > 1) > a
"""
ILLEGAL = """
a > 0.0|a = 0.0|a IN (5,6)|a BETWEEN 9 AND 1|a > 3;|a = 5 AND||5|'abc'|s = "abc"|s > 'abb'|a != 5|a == 5|a.b = 1
a > 3 > 1|01 = 1|99999999999999999999 > a|a = NULL|NULL <> a|a > TRUE|TRUE = 5|5 IN ('5')|a = 5 IN ('x')|a NOT LIKE 'b'
a IS 5|a IS NOT 5|a CONTAINS 5|a CONTAINS b|a BETWEEN 1 OR 9|a BETWEEN 'a' AND 'b'|a IN ()|a IN ('a' 'b')|a IN ('a',)
(a = 5|()|a = 'abc|a = 1e999|a = 1e-999|-a|a AND -5|-5 OR a|NOT 5|(a > 3) > 1|9223372036854775808 = a|a = é|a = 5 NOT
a BETWEEN NULL AND 5|a BETWEEN 1 AND TRUE|/* a = 5|a = /* 5|a = 5 /* 6|'a' > 3|NULL > 3|0L = a|a =|a IN|a BETWEEN 1|a IS
"""


def each(texts: str) -> list[str]:
    return [text.replace("\\n", "\n") for line in texts.strip("\n").split("\n") for text in line.split("|")]
