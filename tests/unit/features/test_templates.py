# SPDX-License-Identifier: Apache-2.0
"""Templates of rules: the subset of Go's text/template that users write."""

from __future__ import annotations

import pytest

from gpudeck.errors import InvalidError
from gpudeck.features import templates

VALUE = {
    "pci": {
        "device": [
            {"class": "0302", "vendor": "10de", "device": "20b0"},
            {"class": "0200", "vendor": "15b3", "device": "101b"},
        ]
    },
    "system": {"osrelease": [{"Name": "ID", "Value": "ubuntu"}]},
    "kernel": {"version": [{"Name": "major", "Value": "6"}]},
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", "a=b"),
        ("{{/* nothing */}}a", "a"),
        ("a {{- /* nothing */ -}} b", "ab"),
        (
            "{{ range .pci.device }}vendor-{{ .class }}-{{ .device }}.present=true\n{{ end }}",
            "vendor-0302-20b0.present=true\nvendor-0200-101b.present=true\n",
        ),
        ("{{range .system.osrelease}}{{.Name}}={{.Value}}{{end}}", "ID=ubuntu"),
        ("n={{ len .pci.device }}", "n=2"),
        ("n={{ .pci.device | len }}", "n=2"),
        ("{{ (index .pci.device 0).vendor }}", "10de"),
        ("{{ with index .kernel.version 0 }}{{ .Value }}{{ end }}", "6"),
        ("{{ $v := index .kernel.version 0 }}{{ $v.Value }}", "6"),
        ("{{ range $i, $d := .pci.device }}{{ $i }}:{{ $d.vendor }} {{ end }}", "0:10de 1:15b3 "),
        ("{{ range $d := .pci.device }}{{ $d.vendor }},{{ end }}", "10de,15b3,"),
        ("{{ range $k, $v := index .system.osrelease 0 }}{{ $k }}{{ end }}", "NameValue"),
        ("{{ if eq (len .pci.device) 2 }}two{{ else }}other{{ end }}", "two"),
        ("{{ if gt 1 2 }}a{{ else if lt 1 2 }}b{{ else }}c{{ end }}", "b"),
        ("{{ range slice .pci.device 2 }}x{{ else }}none{{ end }}", "none"),
        ('{{ range .pci.device }}{{ if eq .vendor "15b3" }}{{ continue }}{{ end }}x{{ end }}', "x"),
        ("{{ range .pci.device }}x{{ break }}{{ end }}", "x"),
        ("{{ $n := 0 }}{{ range .pci.device }}{{ $n = len .vendor }}{{ end }}{{ $n }}", "4"),
        ('{{ and "a" "" "b" }}|{{ or "" "b" }}|{{ not true }}', "|b|false"),
        ("{{ or true (index .pci.device 9) }}", "true"),
        ('{{ printf "%s-%04d|%5s|%-3s|%q|%x" "a" 7 "b" "c" "d" 255 }}', 'a-0007|    b|c  |"d"|ff'),
        ('{{ print "a" 1 2 "b" }}', "a1 2b"),
        ("{{ `raw\\n` }}", "raw\\n"),
        ('a\n{{- "b" -}}\n c', "abc"),
        ("{{ $.kernel.version }}", "[map[Name:major Value:6]]"),
        ('{{ ne "a" "b" }} {{ eq "a" "b" "a" }} {{ le 2 2 }} {{ ge 1 2 }}', "true true true false"),
        ("{{ range 3 }}{{ . }}{{ end }}", "012"),
        ('{{ "GPU-x" | trimPrefix "GPU-" | upper }}', "X"),
        (
            '{{ replace " " "-" "a b c" }}|{{ trunc 3 "abcdef" }}|{{ trunc -2 "abc" }}',
            "a-b-c|abc|bc",
        ),
        ('{{ default "d" "" }}|{{ default "d" "v" }}|{{ ternary "y" "n" true }}', "d|v|y"),
        ("{{ add 1 2 3 }}|{{ sub 5 2 }}|{{ div 7 2 }}|{{ mod -7 2 }}|{{ mul 2 3 }}", "6|3|3|-1|6"),
        ('{{ if contains "10d" "10de" }}y{{ end }}{{ if hasPrefix "x" "10de" }}n{{ end }}', "y"),
        ('{{ join "," (splitList "." "1.2.3") }}|{{ first (splitList "." "1.2") }}', "1,2,3|1"),
        ('{{ regexMatch "^03" "0302" }}|{{ list "b" "a" "b" | uniq | sortAlpha }}', "true|[a b]"),
        ('{{ max 1 3 2 }}|{{ min 3 1 }}|{{ atoi "12" }}|{{ has "a" (list "a") }}', "3|1|12|true"),
    ],
)
def test_a_template_gives_what_go_would_give(text: str, expected: str) -> None:
    assert templates.render(text, VALUE, "here") == expected


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{{ .pci.devices }}", "here: line 1: there is no devices; the names are device"),
        ("a\n{{ nothing . }}", "line 2: 'nothing' is not known here"),
        ('{{ template "x" }}', "there is no template 'x'; defined: none"),
        ("{{ if .pci }}", "if without an end"),
        ("{{ end }}", "end without a beginning"),
        ("{{ .pci", "has no }}"),
        ('{{ eq 1 "1" }}', "different types"),
        ("{{ index .pci.device 7 }}", "index 7 of 2 elements"),
        ("{{ len 3 }}", "len of 3"),
        ("{{ $x }}", "no variable $x"),
        ("{{ range 100000000 }}{{ end }}", "more than 10000 times"),
        ("{{ break }}", "outside of a range"),
        ("{{ .pci .system }}", "only a function"),
        ('{{ printf "%99999999d" 1 }}', "wider than"),
        ("{{ # }}", "is not understood"),
        ("{{ lt 1 }}", "takes other values"),
        ("{{ div 1 0 }}", "division by zero"),
        ("{{ mul 4294967296 4294967296 }}", "more than 64 bits"),
        ('{{ $s := "ab" }}{{ range 99 }}{{ $s = print $s $s }}{{ end }}', "more than 65536"),
        (
            "{{ $l := list 1 }}{{ range 99 }}{{ $l = list $l $l }}{{ end }}",
            "holds more than 10000 values",
        ),
        ('{{ repeat 9999999 "x" }}', "more than 65536"),
        ('{{ env "HOME" }}', "'env' is not known here"),
        ('{{ regexMatch "(" "x" }}', "a pattern: '(' is not valid"),
        ("{{ " + "(" * 100 + "1" + ")" * 100 + " }}", "levels"),
    ],
)
def test_a_template_that_fails_says_where_and_why(text: str, fault: str) -> None:
    with pytest.raises(InvalidError) as caught:
        templates.render(text, VALUE, "here")
    assert fault in caught.value.message
    assert caught.value.field == "here"
