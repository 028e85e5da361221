package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"tandem/broker/settings"
)

func newBrokerCommand() *cobra.Command {
	given := map[string]string{}
	var file string
	var print bool
	cmd := &cobra.Command{
		Use:   "broker [-c broker.conf] [-n 'host:port;host:port'] [--key=value …]",
		Short: "Run a master or a slave",
		Long: `Runs a broker, a master or a slave, until Ctrl-C or SIGTERM. Settings have RocketMQ's own names, in the file and as flags;
flags win over the file. docs/settings.md lists them in full.`,
		Example: `  tandem broker -c broker.conf -n 127.0.0.1:9876
  tandem broker --brokerName=b1 --brokerRole=SYNC_MASTER --embeddedNamesrvPort=9876
  tandem broker --brokerName=b1 --brokerRole=SLAVE --brokerId=1 --listenPort=20911 -n 127.0.0.1:9876`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, warnings, err := loadSettings(file, given)
			if err != nil {
				return err
			}
			if print {
				return printSettings(cmd.OutOrStdout(), s)
			}
			return runBroker(s, warnings, cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&file, "configFile", "c", "", "file with settings, a Java properties file")
	flags.BoolVarP(&print, "printConfigItem", "p", false, "print the settings that would be in force, and end")
	addSettingFlags(flags, given)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError(nameNearFlag(err)) })
	cmd.SetUsageFunc(func(cmd *cobra.Command) error { return printBrokerUsage(cmd) })
	return cmd
}

// loadSettings also looks at NAMESRV_ADDR, as RocketMQ does.
func loadSettings(file string, given map[string]string) (*settings.Settings, []settings.Warning, error) {
	s, warnings, err := settings.Load(file, given)
	if err != nil {
		return nil, nil, usageError(err)
	}
	if servers := os.Getenv("NAMESRV_ADDR"); servers != "" && !s.IsSet("namesrvAddr") {
		if err := s.Set("namesrvAddr", servers); err != nil {
			return nil, nil, usagef("environment variable NAMESRV_ADDR: %w", err)
		}
	}
	return s, warnings, nil
}

func runBroker(s *settings.Settings, warnings []settings.Warning, stderr io.Writer) error {
	log, err := newLogger(s.LogLevel, stderr)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		log.Warn(w.Text)
	}
	logSettings(log, s)
	if s.BrokerRole == settings.Slave && os.Getenv("GOMAXPROCS") == "" {
		addProcessor()
	}
	return serve(func() (*host, error) { return startHost(s, log) }, log)
}

// addProcessor gives the scheduler one processor more, for the one that a slave's receiver keeps while it waits in the kernel for
// bytes that are expected soon: the others' work needs the machine's own.
func addProcessor() { runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1) }

// logSettings writes what was given in one line, and every value in force where the level asks for it.
func logSettings(log *zap.Logger, s *settings.Settings) {
	var given []string
	for _, kv := range s.Effective() {
		log.Debug("setting", zap.String(kv.Key, kv.Value))
		if s.IsSet(kv.Key) {
			given = append(given, kv.Key+"="+kv.Value)
		}
	}
	log.Info("settings given, all others at their defaults", zap.Strings("settings", given))
}

func printSettings(w io.Writer, s *settings.Settings) error {
	for _, kv := range s.Effective() {
		if _, err := fmt.Fprintf(w, "%s=%s\n", kv.Key, kv.Value); err != nil {
			return err
		}
	}
	return nil
}

// settingFlag is a flag that only notes its text: the settings package reads and checks it, so that a flag and a line of the
// file are understood, and refused, in the same way.
type settingFlag struct {
	key   string
	kind  string
	given map[string]string
}

func (f *settingFlag) Set(value string) error { f.given[f.key] = value; return nil }
func (f *settingFlag) String() string         { return f.given[f.key] }
func (f *settingFlag) Type() string           { return f.kind }

// addSettingFlags adds a flag for each setting, and hidden ones for what only RocketMQ has: those are answered with a warning or
// with the reason why they can't be.
func addSettingFlags(flags *pflag.FlagSet, given map[string]string) {
	shorthands := map[string]string{"namesrvAddr": "n"}
	for _, s := range settings.Table() {
		f := flags.VarPF(&settingFlag{s.Key, string(s.Kind), given}, s.Key, shorthands[s.Key], s.Help)
		if s.Kind == settings.KindBool {
			f.NoOptDefVal = "true"
		}
		for _, alias := range s.Aliases {
			flags.VarPF(&settingFlag{alias, string(s.Kind), given}, alias, "", s.Help).Hidden = true
		}
	}
	for _, key := range settings.RocketMQKeys() {
		if flags.Lookup(key) == nil {
			flags.VarPF(&settingFlag{key, "text", given}, key, "", "a setting of RocketMQ that tandem does not have").Hidden = true
		}
	}
}

// nameNearFlag says which setting is meant where a flag's name is mistyped.
func nameNearFlag(err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	name := unknown.GetSpecifiedName()
	if near := settings.NearestKey(name); near != "" && len(name) > 1 {
		return fmt.Errorf("--%s: there is no such setting; is --%s meant?", name, near)
	}
	return fmt.Errorf("%w; tandem broker --help lists them", err)
}

// printBrokerUsage prints the flags in the settings' groups, each with its unit and default.
func printBrokerUsage(cmd *cobra.Command) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage:\n  %s\n\nExamples:\n%s\n\nFlags:\n", cmd.UseLine(), cmd.Example)
	b.WriteString("  -c, --configFile       file with settings, a Java properties file\n")
	b.WriteString("  -p, --printConfigItem  print the settings that would be in force, and end\n")
	b.WriteString("  -h, --help             this text\n")
	table := settings.Table()
	width := 0
	for _, s := range table {
		width = max(width, len(s.Key))
	}
	for _, group := range settings.Groups() {
		fmt.Fprintf(&b, "\n%s:\n", group)
		for s := range slices.Values(table) {
			if s.Group == group {
				writeSettingHelp(&b, s, width)
			}
		}
	}
	b.WriteString("\nA setting marked * is tandem's own; all others are RocketMQ's. Defaults stand in brackets.\n")
	_, err := io.WriteString(cmd.OutOrStderr(), b.String())
	return err
}

func writeSettingHelp(b *strings.Builder, s settings.Setting, width int) {
	short, own := "    ", " "
	if s.Key == "namesrvAddr" {
		short = "-n, "
	}
	if s.New {
		own = "*"
	}
	fmt.Fprintf(b, "  %s--%-*s %s %s", short, width, s.Key, own, s.Help)
	if s.Kind == settings.KindEnum {
		fmt.Fprintf(b, ": %s", strings.Join(s.Values, ", "))
	}
	def := s.DefaultWords()
	if s.Unit != "" && s.DefaultText == "" {
		def += " " + s.Unit
	}
	fmt.Fprintf(b, " [%s]\n", def)
}
