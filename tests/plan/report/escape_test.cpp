#include "penstock/plan/report/internal/escape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(Escape, MarkupHasNoSpecialCharactersLeft) {
  EXPECT_EQ(escape_markup(R"(a<b> & "c" 'd')"), "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;");
}

TEST(Escape, MarkupKeepsLettersOfEveryLanguage) {
  EXPECT_EQ(escape_markup("Zeitplan für 模型 🚰"), "Zeitplan für 模型 🚰");
}

TEST(Escape, MarkupReplacesWhatXmlCannotHold) {
  EXPECT_EQ(escape_markup("a\nb\x01"
                          "c"),
            "a b\uFFFDc");
  EXPECT_EQ(escape_markup("\xEF\xBF\xBF"), "\uFFFD");
}

TEST(Escape, BrokenUtf8BecomesReplacementCharacters) {
  EXPECT_EQ(escape_markup("a\xFFz"), "a\uFFFDz");
  EXPECT_EQ(escape_markup("\xC3"), "\uFFFD");                                 // cut short
  EXPECT_EQ(escape_markup("\xC0\xAF"), "\uFFFD\uFFFD");                       // overlong slash
  EXPECT_EQ(escape_markup("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");             // surrogate
  EXPECT_EQ(quote_json("\xF5\x80\x80\x80").find('\xF5'), std::string::npos);  // above U+10FFFF
}

TEST(Escape, JsonCannotEndItsScriptElement) {
  const std::string quoted = quote_json("</script><!-- & \"quoted\" \\ \n\t");
  EXPECT_EQ(quoted, R"("\u003c/script\u003e\u003c!-- \u0026 \"quoted\" \\ \n\u0009")");
}

}  // namespace
}  // namespace penstock
