# SPDX-License-Identifier: Apache-2.0
"""Templates of rules: the subset of Go's text/template that users write."""

from __future__ import annotations

import time

import pytest

from gpudeck.errors import InvalidError
from gpudeck.features import templates
from gpudeck.features.rules import effort

CALLS = (
    "".join(
        f'{{{{ define "{number}" }}}}' + f'{{{{ template "{number + 1}" . }}}}' * 9 + "{{ end }}"
        for number in range(18)
    )
    + '{{ define "18" }}{{ end }}{{ template "0" . }}'
)
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
        ('{{ printf (cat "%" (repeat 50000 "0") | nospace) | len }}', "50001"),
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
        (
            '{{ define "d" }}[{{ .vendor }}]{{ end }}'
            '{{ range .pci.device }}{{ template "d" . }}{{ end }}',
            "[10de][15b3]",
        ),
        (
            '{{ block "b" 7 }}n={{ . }}{{ end }} {{ template "b" 8 }} {{ template "b" }}',
            "n=7 n=8 n=<no value>",
        ),
        (
            '{{ define "a" }}{{ $x := . }}{{ $x }}{{ end }}{{ $x := 1 }}'
            '{{ template "a" 2 }}{{ $x }}',
            "21",
        ),
        (
            '{{ define "a" }}{{ end }}{{ define "a" }}x{{ end }}{{ define "a" }} {{ end }}'
            '{{ template "a" }}',
            "x",
        ),
        ('{{ with "" }}a{{ else with .pci.device }}{{ len . }}{{ else }}c{{ end }}', "2"),
        (
            "{{ 'a' }} {{ 1e3 }} {{ 0b101 }} {{ 0o17 }} {{ 1_000 }} {{ .5 }} {{ -0x1F }}",
            "97 1000 5 15 1000 0.5 -31",
        ),
        (
            '{{ html "<a b=\'c\'>" }}|{{ js "it\'s" }}|{{ urlquery "a b&c" }}',
            "&lt;a b=&#39;c&#39;&gt;|it\\'s|a+b%26c",
        ),
        ("{{ (.pci.device | first).class | trim | substr 0 63 }}", "0302"),
        ('{{ substr 1 3 "abcd" }}|{{ substr -1 2 "abcd" }}|{{ substr 2 99 "abcd" }}', "bc|ab|cd"),
        (
            '{{ regexReplaceAll "[^A-Za-z0-9.]+" "NVIDIA H100 (80GB)" "-" | trimSuffix "-" }}',
            "NVIDIA-H100-80GB",
        ),
        ('{{ regexReplaceAll "(?P<n>[a-z])([0-9])" "a1b2" "${2}${n}$$" }}', "1a$2b$"),
        ('{{ regexReplaceAllLiteral "a(x*)b" "-ab-axxb-" "${1}" }}', "-${1}-${1}-"),
        ('{{ regexFind "[0-9]+" "a12b3" }}|{{ regexFindAll "[0-9]" "a12b3" 2 }}', "12|[1 2]"),
        (
            '{{ regexSplit "[ ,]+" "a, b c" -1 | join ";" }}|{{ regexSplit ":" "a:b:c" 2 }}',
            "a;b;c|[a b:c]",
        ),
        ('{{ (split "." "1.2.3")._1 }}|{{ (splitn "." 2 "1.2.3")._1 }}', "2|2.3"),
        (
            '{{ quote "a\\"b" }} {{ squote 1 }} {{ cat "a" 2 }} {{ title "an old word" }}',
            '"a\\"b" \'1\' a 2 An Old Word',
        ),
        (
            '{{ nindent 2 "a\\nb" }}|{{ abbrev 5 "abcdefgh" }}|{{ plural "card" "cards" 2 }}',
            "\n  a\n  b|ab...|cards",
        ),
        ('{{ b64enc "ab" }} {{ b64dec "YWI=" }} {{ sha256sum "" | trunc 8 }}', "YWI= ab e3b0c442"),
        (
            '{{ $d := dict "a" 1 "b" 2 }}{{ $_ := set $d "c" 3 }}'
            '{{ keys $d | join "," }}={{ get $d "c" }}',
            "a,b,c=3",
        ),
        ('{{ pluck "vendor" (first .pci.device) (last .pci.device) | join "," }}', "10de,15b3"),
        ('{{ dig "pci" "none" "d" . }}|{{ hasKey (first .pci.device) "class" }}', "d|true"),
        ("{{ list 3 1 3 | uniq | rest }}|{{ concat (list 1) (list 2) | reverse }}", "[1]|[2 1]"),
        (
            '{{ without (list "a" "b") "a" }}|{{ compact (list "" "x") }}|{{ initial (list 1 2) }}',
            "[b]|[x]|[1]",
        ),
        (
            "{{ divf 7 2 }} {{ round 2.345 2 }} {{ ceil 1.2 }} {{ seq 1 2 7 }} "
            "{{ untilStep 3 0 -1 }}",
            "3.5 2.35 2 1 3 5 7 [3 2 1]",
        ),
        (
            '{{ toJson (first .pci.device) }}|{{ (fromJson "{\\"a\\":[1]}").a }}',
            '{"class":"0302","device":"20b0","vendor":"10de"}|[1]',
        ),
        ('{{ kindOf 1 }} {{ kindOf "a" }} {{ kindIs "slice" .pci.device }}', "int string true"),
        ('{{ if and (all 1 "a") (any "" 2) }}y{{ end }}', "y"),
        ('{{ max 1 3 2 }}|{{ min 3 1 }}|{{ atoi "12" }}|{{ has "a" (list "a") }}', "3|1|12|true"),
    ],
)
def test_a_template_gives_what_go_would_give(text: str, expected: str) -> None:
    assert templates.render(text, VALUE, "here") == expected


@pytest.mark.parametrize(
    "text",
    [
        CALLS,
        "{{ range 99 }}{{ range 99 }}{{ $x := until 9999 }}{{ end }}{{ end }}",
        "{{ range 9999 }}{{ $x := print (until 9999) }}{{ end }}",
        "{{ $l := list }}{{ range 9999 }}{{ $l = append $l . }}{{ end }}",
        "{{ range 9999 }}{{ $x := until 9999 | uniq }}{{ end }}",
        '{{ $x := repeat 60000 "a" }}{{ range 9999 }}{{ $y := upper $x | lower }}{{ end }}',
        '{{ $x := repeat 60000 "a" }}{{ range 9999 }}{{ $y := regexMatch "b" $x }}{{ end }}',
    ],
    ids=["calls", "ranges", "shown", "append", "uniq", "texts", "patterns"],
)
def test_a_template_that_would_run_for_ever_is_ended(text: str) -> None:
    begin = time.process_time()
    with effort.bounded(), pytest.raises(InvalidError, match="too long"):
        templates.render(text, VALUE, "here")
    assert time.process_time() - begin < 5


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
        ('{{ define "a" }}{{ template "a" . }}{{ end }}{{ template "a" . }}', "over 20 times"),
        ('{{ define "a" }}x{{ end }}{{ define "a" }}y{{ end }}', "'a' is defined twice"),
        ('{{ if true }}{{ define "a" }}{{ end }}{{ end }}', "define inside of another action"),
        ('{{ block "a" . }}', "block without an end"),
        ('{{ define "a" }}{{ break }}{{ end }}', "outside of a range"),
        ("{{ $l := list 1 }}{{ range 99 }}{{ $l = list $l }}{{ end }}", "in each other more than"),
        ('{{ set (first .pci.device) "a" "b" }}', "only maps that dict made"),
        ('{{ fail "no card" }}', "here: line 1: no card"),
        ("{{ call .pci.device }}", "'call' is not known here: nothing in the data"),
        ("{{ now }}", "labels would change without a change of the node"),
        ("{{ trimm 1 }}", "there is trim"),
        ('{{ regexFind "(a|b)*a(a|b|c){1000}$" (repeat 30000 "ab") }}', "too long"),
        ('{{ repeat 9999999 "x" }}', "more than 65536"),
        ('{{ $x := repeat 60000 "a" }}{{ replace "a" $x $x }}', "more than 65536"),
        ('{{ $x := repeat 60000 "a" }}{{ replace "" $x $x }}', "more than 65536"),
        ('{{ repeat 60000 "\\n" | indent 60000 }}', "more than 65536"),
        ('{{ until 9000 | join (repeat 60000 "a") }}', "more than 65536"),
        ('{{ $x := repeat 9000 "a" }}{{ regexReplaceAll "a" $x $x }}', "more than 65536"),
        ('{{ $x := repeat 9000 "a" }}{{ regexReplaceAllLiteral "a" $x $x }}', "more than 65536"),
        ('{{ ceil "inf" }}', "ceil: cannot convert float infinity"),
        ("{{ until 99999999999999999999 }}", "until: Python int too large"),
        ("{{ " + "1" * 5000 + " }}", "is no number"),
        ("{{ 0x_ }}", "'0x_' is no number"),
        ("x" * 70_000, "more than 65536 characters"),
        (
            '{{ define "a" }}'
            + "{{ if true }}" * 49
            + '{{ template "a" . }}'
            + "{{ end }}" * 50
            + '{{ template "a" . }}',
            "actions stand in each other over 200 times",
        ),
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
