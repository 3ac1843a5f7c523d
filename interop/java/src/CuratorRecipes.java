/**
 * Curator's recipes and ours on the same paths. The first argument is the address of the server, the second one
 * the program that does the Rust side.
 */
public final class CuratorRecipes {
    private CuratorRecipes() {}

    public static void main(String[] args) throws Exception {
        Checks checks = new Checks();
        try (Meeting meeting = new Meeting(args[0], args[1])) {
            new CuratorLocks(meeting).run(checks);
            new CuratorBarriers(meeting).run(checks);
            new CuratorCounters(meeting).run(checks);
            new CuratorQueues(meeting).run(checks);
            new CuratorMembers(meeting).run(checks);
        }
        checks.finish();
    }
}
