import org.apache.commons.cli.Option;
import org.apache.commons.cli.Options;
import org.apache.rocketmq.srvutil.ServerUtil;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/** Every command of mqadmin with its alias, and every option with its letter, name, value and need: one on each line. */
public final class Commands extends MQAdminStartup {
    public static void main(String[] args) {
        initCommand();
        for (SubCommand command : SUB_COMMANDS) {
            System.out.println(command.commandName() + "\t" + (command.commandAlias() == null ? "" : command.commandAlias()));
            Options options = command.buildCommandlineOptions(ServerUtil.buildCommandlineOptions(new Options()));
            for (Option option : options.getOptions()) {
                System.out.println("\t" + option.getOpt() + "\t" + (option.getLongOpt() == null ? "" : option.getLongOpt().trim())
                    + "\t" + (option.hasArg() ? "value" : "flag") + "\t" + (option.isRequired() ? "needed" : ""));
            }
        }
        System.exit(0);
    }
}
