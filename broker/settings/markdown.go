package settings

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// WriteMarkdown writes the page of documentation that lists every setting. It is the same on every machine.
func WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString(pageHead)
	for _, group := range Groups() {
		fmt.Fprintf(&b, "\n## %s\n\n| key | default | valid | role | what it does |\n| --- | --- | --- | --- | --- |\n", group)
		for _, s := range described() {
			if s.Group == group {
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", keyCell(s), defaultCell(s), cell(s.Valid()), s.Role, cell(s.Help))
			}
		}
	}
	b.WriteString(stopHead)
	rules := foreignRules()
	for _, key := range slices.Sorted(maps.Keys(rules)) {
		if rule := rules[key]; rule.stop {
			fmt.Fprintf(&b, "| `%s` | %s |\n", key, cell(rule.text))
		}
	}
	b.WriteString(pageFoot)
	_, err := io.WriteString(w, b.String())
	return err
}

func keyCell(s Setting) string {
	text := "`" + s.Key + "`"
	if s.New {
		text += " *"
	}
	for _, alias := range s.Aliases {
		text += ", also `" + alias + "`"
	}
	return text
}

func defaultCell(s Setting) string {
	if s.DefaultText != "" {
		return cell(s.DefaultText)
	}
	text := "`" + s.Default + "`"
	if s.Unit != "" {
		text += " " + s.Unit
	}
	return text
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

const pageHead = `# Settings

<!-- Made from the table in broker/settings: go generate ./broker/settings -->

A setting is spelled the same in ` + "`broker.conf`" + `, as a flag of ` + "`tandem broker`" + ` (` + "`--brokerRole=SLAVE`" + `) and in
` + "`mqadmin getBrokerConfig`" + `. Names are RocketMQ's own; a * marks those that RocketMQ does not have. Flags win over the file.

The file is a Java properties file, in ISO-8859-1 as Java reads it: ` + "`key=value`" + `, ` + "`#`" + ` begins a comment line, a backslash at a
line's end continues it. Blanks at the end of a value are dropped. There is no ` + "`${…}`" + ` expansion. A key given twice counts as
given last, with a warning. An empty text is the default. Where neither the file nor a flag names name servers, the
environment variable ` + "`NAMESRV_ADDR`" + ` does.

A key that nobody knows, or a bad value, stops the start with a line that names key, value, file and line, and what would be valid.
`

const stopHead = `
## RocketMQ's settings that tandem does not have

They are named in one warning at start, and change nothing. These stop the start instead, because ignoring them would change
what is safe or how the store is written:

| key | why |
| --- | --- |
`

const pageFoot = `
Several directories in ` + "`storePathCommitLog`" + ` stop the start too: tandem keeps its commit log in one.
`
